{{- /* Written by tools/chart from src/kube_rdma/rules/install; do not edit. */}}
{{- define "kube-rdma.over" }}
{{- $values := deepCopy .below }}
{{- range $name, $value := .above }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $values $name)) }}
{{- $inner := dict "below" (get $values $name) "above" $value }}
{{- $value = include "kube-rdma.over" $inner | fromJson }}
{{- end }}
{{- if not (kindIs "invalid" $value) }}
{{- $_ := set $values $name $value }}
{{- end }}
{{- end }}
{{- toJson $values }}
{{- end }}
{{- define "kube-rdma.values" }}
{{- /* The defaults of values.yaml once more: `helm upgrade --reuse-values` has those of an older
chart, and null takes one away. */}}
{{- $layers := .Files.Get "files/layers.json" | fromJson }}
{{- $values := $layers.defaults }}
{{- if kindIs "map" (get (.Values.agent | default dict) "resources") }}
{{- $_ := unset $values.agent "resources" }}
{{- end }}
{{- if kindIs "map" (get (.Values.controller | default dict) "resources") }}
{{- $_ := unset $values.controller "resources" }}
{{- end }}
{{- $preset := get $layers.presets
    (.Values.preset | default "default") }}
{{- $distribution := get $layers.distributions
    (.Values.distribution | default "kubernetes") }}
{{- range $layer := list $preset $distribution (omit .Values "global") }}
{{- $values = include "kube-rdma.over" (dict "below" $values "above" $layer) | fromJson }}
{{- end }}
{{- $version := $values.kubernetesVersion | default .Capabilities.KubeVersion.Version }}
{{- $_ := set $values.platform "validatingPolicies" (semverCompare ">=1.30-0" $version) }}
{{- $_ := set $values.platform "mutatingPolicies" (semverCompare ">=1.36-0" $version) }}
{{- $_ := set $values.platform "appArmorField" (semverCompare ">=1.30-0" $version) }}
{{- toJson $values }}
{{- end }}
