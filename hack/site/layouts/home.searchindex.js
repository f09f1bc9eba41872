{{- /* One entry for each heading with the text below it: page, address, heading, text. It is a script, because browsers load no JSON from files. */ -}}
{{- $entries := slice -}}
{{- range site.Pages -}}
  {{- if .File -}}
    {{- $title := partial "title.html" . -}}
    {{- $address := partial "url.html" . | strings.TrimPrefix "/" -}}
    {{- range split (.Content | replaceRE `(?s)<svg.*?</svg>` "" | replaceRE `<h[123] id="` "\x00") "\x00" -}}
      {{- range findRESubmatch `(?s)^([^"]+)">(.*?)</h[123]>(.*)$` . 1 -}}
        {{- $text := index . 3 | plainify | htmlUnescape -}}
        {{- $entries = $entries | append (dict "page" $title "address" (printf "%s#%s" $address (index . 1)) "heading" (index . 2 | plainify | htmlUnescape) "text" (replaceRE `\s+` " " $text | strings.TrimSpace)) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
searchIndex = {{ $entries | jsonify }}
