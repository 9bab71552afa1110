#!/bin/sh
# Helm, as Kustomize calls it: `template NAME CHART …`. Lints the chart first, where a warning is an error, and checks
# that its schema refuses misspelt values.
set -eu
if [ "$1" = template ]; then
  (shift 2 && go tool helm lint --strict "$@" >&2)
  for value in imagge.tag=v1 roles.reader.replica=1 autoscaling.enable=true; do
    (shift 2 && ! go tool helm lint "$@" --set "$value" 2>&1) | grep -q 'additional properties' ||
      { echo "helm.sh: values.schema.json does not refuse $value" >&2; exit 1; }
  done
fi
exec go tool helm "$@"
