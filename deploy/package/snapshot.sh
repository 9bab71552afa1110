#!/bin/sh
# Builds all archives, packages and SBOMs of the current commit in dist/, as a release would, and
# checks that none is missing.
set -eu
cd "$(dirname "$0")/../.."
began=$(date +%s)
deploy/package/goreleaser.sh release --snapshot --clean
cd dist

version=$(sed -n 's/.*"version":"\([^"]*\)".*/\1/p' metadata.json)
package=$(echo "$version" | sed 's/-/~/')
files="SHA256SUMS homebrew/Casks/kudos.rb
  kudos_${package}_amd64.deb kudos_${package}_arm64.deb
  kudos-$package-1.x86_64.rpm kudos-$package-1.aarch64.rpm"
for platform in linux_amd64 linux_arm64 darwin_amd64 darwin_arm64 windows_amd64 windows_arm64; do
  archive=kudos_${version}_$platform.tar.gz
  case $platform in windows*) archive=${archive%.tar.gz}.zip ;; esac
  files="$files $archive $archive.sbom.json"
  case $platform in linux*) files="$files kudos-iceberg_${version}_$platform.tar.gz" ;; esac
  # The SBOM has the modules in the program.
  grep -q '"github.com/twmb/franz-go"' "$archive.sbom.json" ||
    { echo "snapshot: $archive.sbom.json does not list the program's modules" >&2; exit 1; }
done
# shellcheck disable=SC2086 # a list of names without spaces
ls -l $files # fails if one is missing
sha256sum --check --quiet SHA256SUMS
echo "snapshot: $version is complete, $(($(date +%s) - began)) s"
