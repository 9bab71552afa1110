#!/usr/bin/env bash
# Runs a test that reproduces a past failure: regress.sh NAME. Without a name it lists those of regress.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cases=integration/regress.txt
[ -n "${1:-}" ] || { awk 'NF && !/^#/' $cases; exit; }
read -r pkg test < <(awk -v name="$1" '$1 == name {print $2, $3}' $cases) ||
	{ echo "regress: unknown case '$1'; 'make regress' lists them all" >&2; exit 1; }
exec 3>&1
output=$("${GO:-go}" test -count=1 -v -run "^${test//\//\$/^}\$" "$pkg" | tee >(cat >&3))
# A test that was skipped or does not exist has tested nothing.
grep -q -- "--- PASS: $test " <<<"$output" || { echo "regress: $test did not run: see 'make deps'" >&2; exit 1; }
