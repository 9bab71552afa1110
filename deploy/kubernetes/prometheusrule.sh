#!/bin/sh
# Prints the alerts as a PrometheusRule for the Prometheus operator: deploy/kubernetes/prometheusrule.sh | kubectl -n kudos apply -f -
# RUNBOOKS=https://HOST/PATH/operations.md is where the alerts' runbooks are, if you have a copy of them.
set -eu
base=https://github.com/OWNER/kudos/blob/HEAD/docs/operations.md
cat <<'END'
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kudos
  labels: {app.kubernetes.io/name: kudos}
spec:
END
sed -e 's/^/  /' -e "s|runbook_url: $base#|runbook_url: ${RUNBOOKS:-$base}#|" "$(dirname "$0")/../prometheus/kudos.rules.yaml"
