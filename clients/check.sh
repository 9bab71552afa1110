#!/usr/bin/env bash
# Builds the clients in a temporary directory, runs their tests, the conformance cases, and their examples against
# `kudos dev`. It needs Go, npm, Python with venv, Java and Maven, and the first time the network.
#
#   clients/check.sh                # all
#   clients/check.sh python java    # only these
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
pid=
finish() {
  [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" || true; }
  rm -rf "$work"
}
trap finish EXIT

program=${KUDOS_TEST_PROGRAM:-$work/kudos}
[ -n "${KUDOS_TEST_PROGRAM:-}" ] || go build -pgo=off -ldflags=-w -o "$program" .
"$program" dev --kafka-addr 127.0.0.1:0 --mysql-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 --reader-addr 127.0.0.1:0 \
  --admin-addr 127.0.0.1:0 --ready-file "$work/ready.json" >"$work/dev.log" 2>&1 &
pid=$!
for _ in $(seq 600); do
  [ ! -e "$work/ready.json" ] && kill -0 "$pid" 2>/dev/null || break
  sleep 0.2
done
[ -e "$work/ready.json" ] || { cat "$work/dev.log" >&2; echo 'clients: kudos dev did not become ready' >&2; exit 1; }
address() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/ready.json" "$1"; }
PRODUCER_URL=http://$(address http) READER_URL=http://$(address reader) BROKERS=$(address kafka)
export PRODUCER_URL READER_URL BROKERS

# quiet runs a command and shows its output only if it fails.
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; echo "clients: failed: $*" >&2; exit 1; }; }

# checked NAME TESTEE… -- EXAMPLE… runs the conformance cases and the example of a client.
checked() {
  local name=$1 testee=()
  shift
  while [ "$1" != -- ]; do testee+=("$1"); shift; done
  shift
  quiet "$program" conform -- "${testee[@]}"
  local conform
  conform=$(tail -1 "$work/log")
  quiet timeout 60 "$@"
  echo "ok	clients/$name: $conform"
}

check_go() { # its tests run with the other modules
  (cd clients/go && go build -o "$work/go/" ./testee ./examples/like)
  checked go "$work/go/testee" -- "$work/go/like"
}

check_typescript() {
  cp -r clients/typescript "$work/ts"
  cp -r producer reader "$work" # for the generated types
  (cd "$work/ts" && rm -rf node_modules dist && quiet npm ci --ignore-scripts --no-audit --no-fund --prefer-offline &&
    sed -i 's,\.\./\.\./,../,g' package.json && quiet npm run generate && diff -r src/generated "$OLDPWD/clients/typescript/src/generated")
  local browser
  browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
  (cd "$work/ts" && KUDOS_CHROMIUM=$browser quiet npm test)
  checked typescript node "$work/ts/testee.mjs" -- node "$work/ts/examples/like.mjs"
}

check_python() {
  python3 -m venv "$work/venv"
  quiet "$work/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r clients/python/requirements.txt
  cp -r clients/python "$work/python"
  export PYTHONPATH=$work/python
  (cd "$work/python" && quiet "$work/venv/bin/python" -W error -m unittest)
  checked python "$work/venv/bin/python" "$work/python/testee.py" -- "$work/venv/bin/python" "$work/python/examples/like.py"
}

check_java() {
  cp -r clients/java "$work/java"
  (cd "$work/java" && quiet mvn -q -B test dependency:copy-dependencies)
  local path="$work/java/target/classes:$work/java/target/test-classes:$work/java/target/dependency/*"
  checked java java -cp "$path" kudos.client.Testee -- java -cp "$path" Like
}

[ $# -gt 0 ] || set -- go typescript python java
for client; do "check_$client"; done
