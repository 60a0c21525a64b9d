{{- /* Written by tools/chart from src/kube_rdma/install/rules; do not edit. */}}
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
    (.Values.preset | default "default") | default dict }}
{{- $distribution := get $layers.distributions
    (.Values.distribution | default "kubernetes") }}
{{- range $layer := list $preset $distribution (omit .Values "global") }}
{{- $values = include "kube-rdma.over" (dict "below" $values "above" $layer) | fromJson }}
{{- end }}
{{- $version := $values.kubernetesVersion | default .Capabilities.KubeVersion.Version }}
{{- $_ := set $values.platform "definitionRules" (semverCompare ">=1.25-0" $version) }}
{{- $_ := set $values.platform "validatingPolicies" (semverCompare ">=1.30-0" $version) }}
{{- $_ := set $values.platform "addressFunctions" (semverCompare ">=1.31-0" $version) }}
{{- $_ := set $values.platform "mutatingPolicies" (semverCompare ">=1.36-0" $version) }}
{{- $_ := set $values.platform "appArmorField" (semverCompare ">=1.30-0" $version) }}
{{- $platform := $values.platform }}
{{- $full := $values.fullnameOverride }}
{{- $base := $full | default "kube-rdma" }}
{{- $role := ternary "operator" "controller" $platform.operator }}
{{- if not $values.namespace.name }}
{{- $_ := set $values.namespace "name" .Release.Namespace }}
{{- end }}
{{- $controller := $values.controller.name | default (printf "%s-%s" $base $role) }}
{{- $_ := set $platform "controller" $controller }}
{{- $_ := set $platform "base" $base }}
{{- $_ := set $platform "prefix" ($full | default $values.namespace.name) }}
{{- $_ := set $platform "own" (ternary (printf "%s." $full) "" (ne $full "")) }}
{{- $agents := ternary "kube-rdma" $base $platform.operator }}
{{- $_ := set $platform "agentAccount" (printf "%s-agent" $agents) }}
{{- $_ := set $platform "instance" .Release.Name }}
{{- $_ := set $platform "manager" .Release.Service }}
{{- $version := $values.image.digest | default $values.image.tag | replace ":" "-" }}
{{- $_ := set $platform "version" ($version | trunc 63 | trimAll "-_.") }}
{{- if $full }}
{{- $name := printf "%s-agent" $full }}
{{- $_ := set $platform "daemonSet" $name }}
{{- $_ := set $platform "label" $name }}
{{- $_ := set $platform "configMap" (ternary $name "" (ne $platform.configMap "")) }}
{{- end }}
{{- $crds := $values.crds }}
{{- if and $values.platform.networks $crds.install (not $crds.networkAttachmentDefinitions) }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- $name := "network-attachment-definitions.k8s.cni.cncf.io" }}
{{- $kind := "CustomResourceDefinition" }}
{{- $theirs := lookup "apiextensions.k8s.io/v1" $kind "" $name | default dict }}
{{- $notes := dig "metadata" "annotations" dict $theirs }}
{{- $name = get $notes "meta.helm.sh/release-name" }}
{{- $space := get $notes "meta.helm.sh/release-namespace" }}
{{- $own := and (eq $name .Release.Name) (eq $space .Release.Namespace) }}
{{- $_ := set $crds "networkAttachmentDefinitions" (or (not $theirs) $own) }}
{{- end }}
{{- end }}
{{- toJson $values }}
{{- end }}
