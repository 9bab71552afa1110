#!/bin/sh
# Runs goreleaser, and the syft that it calls for SBOMs, in the versions of tools/release and
# tools/sbom. The first time, Go compiles both, which takes minutes. In a clone at a tag, this
# writes dist/ and uploads nothing:
#
#   deploy/package/goreleaser.sh release --clean
#
# SBOM=no does without syft; then pass --skip=sbom.
set -eu
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0
goreleaser=$(go tool -modfile=tools/release/go.mod -n goreleaser)
if [ "${SBOM:-yes}" = yes ]; then
  syft=$(go tool -modfile=tools/sbom/go.mod -n syft)
  PATH=$(dirname "$syft"):$PATH
  export PATH
fi
# Without a remote, goreleaser would leave out the commit. It only names it.
if ! git ls-remote --get-url >/dev/null 2>&1; then
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0="$PWD"
fi
exec "$goreleaser" "$@"
