{{/* Labels of a component: a role, or setup. The selectors contain them, so there is no label with a version. */}}
{{- define "kudos.labels" -}}
{app.kubernetes.io/name: kudos, app.kubernetes.io/component: {{ . }}}
{{- end }}

{{/* Metadata, given the root, the name and the component. */}}
{{- define "kudos.metadata" }}
name: {{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels: {{ include "kudos.labels" (index . 2) }}
{{- end }}

{{- define "kudos.settings" -}}
{{ toYaml .Values.settings }}
{{- end }}

{{/* The name ends with a hash of the contents, so a changed setting triggers a rolling restart. */}}
{{- define "kudos.configmap" -}}
kudos-{{ include "kudos.settings" . | sha256sum | trunc 10 }}
{{- end }}

{{/* What every pod has, given root, component, args, resources; optional: kafka, memory, secret (a variable, a Secret and its key), service (of readers), ports and stateful. No privileges, and only its own volume is writable. */}}
{{- define "kudos.pod" }}
{{- $values := .root.Values }}
{{- $certificates := and .kafka $values.kafka.certificates }}
serviceAccountName: kudos-{{ .component }}
automountServiceAccountToken: false
# kudos doesn't need the environment variables that Kubernetes sets for Services.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  # Otherwise each start would change the owner of all files in the volume.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $values.pod }}
{{ toYaml . }}
{{- end }}
volumes:
  {{- if $certificates }}
  - name: kafka-ca
    secret: {secretName: {{ $values.kafka.caSecret }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}
  {{- end }}
  - name: settings
    configMap: {name: {{ include "kudos.configmap" .root }}}
  {{- if $certificates }}
  # The Secret that Strimzi creates for the KafkaUser of this name.
  - name: kafka-user
    secret: {secretName: kudos-{{ .component }}, defaultMode: 0440, items: [{key: user.crt, path: user.crt}, {key: user.key, path: user.key}]}
  {{- end }}
containers:
  - name: kudos
    image: {{ $values.image.repository }}:{{ get $values.image.tags .component | default $values.image.tag | default .root.Chart.AppVersion }}
    {{- with $values.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    args: [{{ .args }}, --config, /etc/kudos/kudos.yaml]
    {{- if or .memory .secret $values.env }}
    env:
      {{- with .memory }}
      - {name: GOMEMLIMIT, value: {{ . }}}
      {{- end }}
      {{- with .secret }}
      - name: {{ index . 0 }}
        valueFrom: {secretKeyRef: {name: {{ index . 1 }}, key: {{ index . 2 }}}}
      {{- end }}
      {{- with .service }}
      - name: POD_NAME
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
      # Where other readers ask this one if reader.replicas is set.
      - {name: KUDOS_READER_ADVERTISED_URL, value: "http://$(POD_NAME).{{ . }}:8081"}
      {{- end }}
      {{- with $values.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    resources: {{- toYaml .resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      {{- if $certificates }}
      - {name: kafka-ca, mountPath: /etc/kafka/ca, readOnly: true}
      - {name: kafka-user, mountPath: /etc/kafka/user, readOnly: true}
      {{- end }}
      - {name: settings, mountPath: /etc/kudos, readOnly: true}
      {{- if .stateful }}
      - {name: state, mountPath: /var/lib/kudos}
      {{- end }}
{{- end }}
