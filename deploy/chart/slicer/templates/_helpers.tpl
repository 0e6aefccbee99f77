{{- define "slicer.labels" -}}
app.kubernetes.io/name: slicer
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
app.kubernetes.io/part-of: slicer
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "slicer.selector" -}}
app.kubernetes.io/name: slicer
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "slicer.image" -}}
{{ .root.Values.image.repository }}:{{ (index .root.Values .part).image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "slicer.etcdNames" -}}
{{- $hosts := list }}
{{- range $i := until 3 }}
{{- $hosts = append $hosts (printf "%s-etcd-%d.%s-etcd.%s.svc:2379" $.Release.Name $i $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- join "," $hosts }}
{{- end }}

{{- define "slicer.store" -}}
{{- if .Values.etcd.enabled -}}
etcd://{{ include "slicer.etcdNames" . }}/{{ .Values.etcd.prefix }}
{{- else -}}
etcd://{{ join "," .Values.etcd.endpoints }}/{{ .Values.etcd.prefix }}
{{- if .Values.etcd.secret }}?ca=/etc/slicer/etcd/ca.crt&cert=/etc/slicer/etcd/tls.crt&key=/etc/slicer/etcd/tls.key{{ end }}
{{- end }}
{{- end }}

{{- define "slicer.check" -}}
{{- if and (not .Values.tls.secret) (not .Values.insecure) }}
{{- fail "tls.secret is empty: want a Secret with tls.crt, tls.key and ca.crt, or insecure: true to serve what connects all the same" }}
{{- end }}
{{- if and .Values.tls.secret .Values.insecure }}
{{- fail "insecure: true is not allowed together with tls.secret" }}
{{- end }}
{{- if and (not .Values.etcd.enabled) (not .Values.etcd.endpoints) }}
{{- fail "etcd.endpoints is empty: want host:port of the members of an etcd, or etcd.enabled: true" }}
{{- end }}
{{- if and .Values.policy (not .Values.tls.secret) }}
{{- fail "policy needs tls.secret, by which identities are known" }}
{{- end }}
{{- if and .Values.slicerproxy.enabled (not .Values.slicerproxy.rules) }}
{{- fail "slicerproxy.rules is empty: want the text of --config's file" }}
{{- end }}
{{- if and .Values.slicerproxy.secret (not .Values.tls.secret) }}
{{- fail "slicerproxy.secret is not allowed without tls.secret: Distributors serve plain text then" }}
{{- end }}
{{- if and .Values.slicerproxy.enabled .Values.policy (or (not .Values.slicerproxy.secret) (eq .Values.slicerproxy.secret .Values.tls.secret)) }}
{{- fail "slicerproxy.secret is not one of its own: with a policy slicerproxy wants an identity of its own, not that of the control plane" }}
{{- end }}
{{- end }}

{{/* Flags that all servers have. */}}
{{- define "slicer.flags" -}}
{{- if .Values.tls.secret }}
{{- include "slicer.tlsFlags" . }}
{{- else }}
- --insecure
{{- end }}
{{- if .Values.policy }}
- --policy=/etc/slicer/policy/policy.yaml
{{- end }}
{{ include "slicer.plainFlags" . }}
{{- end }}

{{- define "slicer.tlsFlags" }}
- --tls-cert=/etc/slicer/tls/tls.crt
- --tls-key=/etc/slicer/tls/tls.key
- --tls-ca=/etc/slicer/tls/ca.crt
{{- end }}

{{/* Flags that slicerproxy has, too. */}}
{{- define "slicer.plainFlags" -}}
{{- with .Values }}
{{- if .zone }}
- --zone={{ .zone }}
{{- end }}
- --log-level={{ .log.level }}
- --log-format={{ .log.format }}
{{- end }}
{{- end }}

{{- define "slicer.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}

{{/* What slicerctl goes by. */}}
{{- define "slicer.ctlEnv" -}}
- {name: SLICER_TLS_CERT, value: /etc/slicer/tls/tls.crt}
- {name: SLICER_TLS_KEY, value: /etc/slicer/tls/tls.key}
- {name: SLICER_TLS_CA, value: /etc/slicer/tls/ca.crt}
{{- end }}

{{- define "slicer.mounts" -}}
{{- if .Values.tls.secret }}
- {name: tls, mountPath: /etc/slicer/tls, readOnly: true}
{{- end }}
{{- if .Values.policy }}
- {name: policy, mountPath: /etc/slicer/policy, readOnly: true}
{{- end }}
{{- end }}

{{- define "slicer.etcdMounts" -}}
{{- if and .Values.etcd.secret (not .Values.etcd.enabled) }}
- {name: etcd, mountPath: /etc/slicer/etcd, readOnly: true}
{{- end }}
{{- end }}

{{- define "slicer.volumes" -}}
{{- if .Values.tls.secret }}
- name: tls
  secret: {secretName: {{ .Values.tls.secret }}, defaultMode: 288}
{{- end }}
{{- if .Values.policy }}
- name: policy
  configMap: {name: {{ .Release.Name }}-policy}
{{- end }}
{{- end }}

{{- define "slicer.etcdVolumes" -}}
{{- if and .Values.etcd.secret (not .Values.etcd.enabled) }}
- name: etcd
  secret: {secretName: {{ .Values.etcd.secret }}, defaultMode: 288}
{{- end }}
{{- end }}

{{/* What the pods of all parts have in common: {root, part}. */}}
{{- define "slicer.pod" -}}
serviceAccountName: {{ .root.Release.Name }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: {{ .root.Values.topologySpread }}
    labelSelector: {matchLabels: {{ include "slicer.selector" . | fromYaml | toJson }}}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ .root.Values.topologySpread }}
    labelSelector: {matchLabels: {{ include "slicer.selector" . | fromYaml | toJson }}}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "slicer.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* A server ends within 15 s of SIGTERM; before that it has 5 s in which new clients stop to come. */}}
{{- define "slicer.ending" -}}
terminationGracePeriodSeconds: 30
{{- end }}

{{- define "slicer.preStop" -}}
lifecycle:
  preStop: {sleep: {seconds: 5}}
{{- end }}

{{- define "slicer.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "slicer.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "slicer.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "slicer.selector" . | nindent 6 }}
{{- end }}

{{- define "slicer.netpol" }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "slicer.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "slicer.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end }}

{{- define "slicer.toEtcd" }}
    - ports:
        {{- range uniq .ports }}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
      {{- if .own }}
      to: [{{ .peer }}]
      {{- end }}
{{- end }}
