#!/bin/sh
# Prints the alerts as a PrometheusRule for the Prometheus operator: deploy/kubernetes/prometheusrule.sh | kubectl -n kudos apply -f -
set -eu
cat <<'END'
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kudos
  labels: {app.kubernetes.io/name: kudos}
spec:
END
sed 's/^/  /' "$(dirname "$0")/../prometheus/kudos.rules.yaml"
