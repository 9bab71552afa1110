#!/usr/bin/env bash
# Builds the documentation site: README.md, docs/*.md, and the pages about the project, with a search that works from
# files. It fails on broken links and headings. It needs Python 3.11, npm and, the first time, the network; what it
# installs stays in a cache directory, named after the hash of the pinned packages.
#
#   tools/site/build.sh OUT_DIRECTORY     # then open OUT_DIRECTORY/index.html
#
# To upgrade: change requirements.in and run the command in it; for scripts.sha512, `npm pack NAME@VERSION` and sha512sum.
set -euo pipefail
[ $# = 1 ] || { echo "usage: tools/site/build.sh OUT_DIRECTORY" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd -P)
out=$(python3 -c 'import os, sys; print(os.path.realpath(sys.argv[1]))' "$1")

fail() { echo "site: $*" >&2; exit 1; }
case "$out/" in "$repository"/*) fail "$out is in the repository, where tests read every text file: choose a directory outside" ;; esac
# An earlier site is replaced, and nothing else.
[ ! -e "$out" ] || [ -f "$out/search.json" ] || [ -z "$(ls -A "$out")" ] || fail "$out is not empty and not a site"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tools="${XDG_CACHE_HOME:-$HOME/.cache}/kudos-site/$(cat "$here"/requirements.txt "$here"/scripts.sha512 | sha256sum | cut -c1-16)"
if [ ! -e "$tools/complete" ]; then
  rm -rf "$tools"
  mkdir -p "$tools"
  python3 -m venv "$tools/python"
  "$tools/python/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$here/requirements.txt"
  (cd "$tools" && npm pack --silent iframe-worker@1.0.4 @mermaid-js/tiny@11.17.2 >/dev/null && sha512sum --quiet -c "$here/scripts.sha512")
  tar -xzOf "$tools"/iframe-worker-*.tgz package/shim/index.js >"$tools/iframe-worker.js"
  tar -xzOf "$tools"/mermaid-js-tiny-*.tgz package/dist/mermaid.tiny.js >"$tools/mermaid.js"
  touch "$tools/complete"
fi
python="$tools/python/bin/python"

"$python" "$here/prepare.py" "$repository" "$work"
mkdir "$work/pages/javascripts"
cp "$tools"/*.js "$work/pages/javascripts"
(cd "$work" && "$python" -m zensical build --strict >log 2>&1) || { sed $'/^Traceback/,$d; s/\e\[[0-9;]*m//g' "$work/log" >&2; fail "the pages have errors"; }
"$python" "$here/check.py" "$repository" "$work/site"

rm -rf "$out"
mkdir -p "$(dirname "$out")"
mv "$work/site" "$out"
