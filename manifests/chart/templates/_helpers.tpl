{{- /* The name of one of our images: (list . "controller"). */}}
{{- define "katib.image" -}}
{{- $image := (first .).Values.image -}}
{{- $tag := get $image.tags (last .) | default $image.tag | default (first .).Chart.AppVersion -}}
{{- with $image.registry }}{{ . }}/{{ end }}katib/{{ last . }}:{{ $tag }}
{{- end }}

{{- /* The same in an entry of the KatibConfig, whose default policy is IfNotPresent. */}}
{{- define "katib.configuredImage" -}}
image: {{ include "katib.image" . }}
{{- with (first .).Values.image.pullPolicy | replace "IfNotPresent" "" }}
      imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* The KatibConfig: as it is shipped, or with the entries of the values in place of those of the same name. */}}
{{- define "katib.configuration" -}}
{{- $text := include "katib.shippedConfiguration" . }}
{{- if compact (values .Values.config) }}
  {{- $config := fromYaml $text }}
  {{- $_ := mergeOverwrite $config.init .Values.config.init }}
  {{- range $section, $key := dict "suggestions" "algorithmName" "earlyStoppings" "algorithmName" "metricsCollectors" "kind" }}
    {{- $entries := get $.Values.config $section }}
    {{- $names := dict }}
    {{- range $entries }}{{ $_ := set $names (get . $key) true }}{{ end }}
    {{- range get $config.runtime $section }}
      {{- if not (hasKey $names (get . $key)) }}{{ $entries = append $entries . }}{{ end }}
    {{- end }}
    {{- $_ := set $config.runtime $section $entries }}
  {{- end }}
  {{- $text = toYaml $config }}
{{- end }}
{{- $text }}
{{- end }}
