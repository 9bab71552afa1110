#!/usr/bin/env bash
# Compares the OpenAPI documents with the standard (Redocly CLI, Spectral; the AsyncAPI document, too) and with what
# `kudos dev` serves (Schemathesis, all phases and checks). It needs Python 3.11 with venv, npm, and the first time the network; what it
# installs stays in a cache directory, named after the hash of the pinned packages.
#
#   tools/openapi/check.sh                # EXAMPLES=1000 SEED=7 tests more, and other requests
#
# To upgrade: change requirements.in and run the command in it; change package.json and run
# npm install --package-lock-only --omit-lockfile-registry-resolved.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
work=$(mktemp -d)
pid=
finish() {
  [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" || true; }
  rm -rf "$work"
}
trap finish EXIT

tools="${XDG_CACHE_HOME:-$HOME/.cache}/kudos-openapi/$(cat "$here"/requirements.txt "$here"/package-lock.json | sha256sum | cut -c1-16)"
if [ ! -e "$tools/complete" ]; then
  rm -rf "$tools"
  mkdir -p "$tools"
  python3 -m venv "$tools/python"
  "$tools/python/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$here/requirements.txt"
  cp "$here"/package*.json "$tools"
  (cd "$tools" && npm ci --ignore-scripts --no-audit --no-fund >/dev/null)
  touch "$tools/complete"
fi

# Both report many wishes, such as tags; errors are what a tool that reads the document stumbles over.
echo 'extends: ["spectral:asyncapi"]' >"$work/asyncapi.yaml"
"$tools/node_modules/.bin/spectral" lint --fail-severity error --display-only-failures -r "$work/asyncapi.yaml" schema/asyncapi.yaml
echo 'extends: ["spectral:oas"]' >"$work/spectral.yaml"
for api in producer reader; do
  REDOCLY_TELEMETRY=off "$tools/node_modules/.bin/redocly" lint "$api/openapi.yaml" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  "$tools/node_modules/.bin/spectral" lint --fail-severity error --display-only-failures -r "$work/spectral.yaml" "$api/openapi.yaml"
done

program=${KUDOS_TEST_PROGRAM:-$work/kudos}
[ -n "${KUDOS_TEST_PROGRAM:-}" ] || go build -pgo=off -ldflags=-w -o "$program" .
"$program" dev --kafka-addr 127.0.0.1:0 --mysql-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 --reader-addr 127.0.0.1:0 \
  --admin-addr 127.0.0.1:0 --ready-file "$work/ready.json" --simulate 20 >"$work/dev.log" 2>&1 &
pid=$!
for _ in $(seq 600); do
  [ ! -e "$work/ready.json" ] && kill -0 "$pid" 2>/dev/null || break
  sleep 0.2
done
[ -e "$work/ready.json" ] || { cat "$work/dev.log" >&2; echo 'openapi: kudos dev did not become ready' >&2; exit 1; }

cp "$here"/hooks.py "$work"
address() { "$tools/python/bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/ready.json" "$1"; }
for api in producer:http reader:reader; do
  (cd "$work" && timeout 300 "$tools/python/bin/schemathesis" --config-file "$here/schemathesis.toml" run --no-color --checks all \
    --phases examples,coverage,fuzzing,stateful --max-examples "${EXAMPLES:-40}" --seed "${SEED:-1}" \
    --url "http://$(address "${api#*:}")" "$OLDPWD/${api%:*}/openapi.yaml" >"$work/log" 2>&1) ||
    { cut -c1-2000 "$work/log" >&2; echo "openapi: ${api%:*}/openapi.yaml and what is served differ" >&2; exit 1; }
  grep -E '^ +[0-9,]+ generated' "$work/log" | sed "s,^ *,ok	${api%:*}/openapi.yaml: ,"
done
