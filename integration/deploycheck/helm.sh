#!/bin/sh
# Helm, as Kustomize calls it: `template NAME CHART …`. Lints the chart first; a warning is an error.
set -eu
if [ "$1" = template ]; then (shift 2 && go tool helm lint --strict "$@" >&2); fi
exec go tool helm "$@"
