package expression

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/sprig/v3"
	"github.com/tidwall/gjson"
)

func TestTemplatesRender(t *testing.T) {
	data := map[string]any{
		"ClusterName": "1084s8ceexsehjm2",
		"Object": map[string]any{
			"metadata": map[string]any{"namespace": "objnamespace", "name": "objname"},
			"spec":     map[string]any{"text": `<a href="x">&'`, "count": int64(3), "list": []any{"a", "b"}},
		},
		"Value": gjson.Parse(`"of the path"`),
	}
	for name, tt := range map[string]struct{ template, want string }{
		"text without actions":                    {"plain", "plain"},
		"white space at the ends is removed":      {" \n{{ .ClusterName }}\t", "1084s8ceexsehjm2"},
		"the default name":                        {"{{ .Object.metadata.namespace | sha3short }}-{{ .Object.metadata.name | sha3short }}", "2928c2aa0e510f017f07-73d08a1ba188f1340dae"},
		"sha3sum has 64 digits":                   {`{{ sha3sum "objname" | len }}`, "64"},
		"sha3short begins as sha3sum":             {`{{ hasPrefix (sha3short "objname") (sha3sum "objname") }}`, "true"},
		"sha3short of a length":                   {`{{ sha3short "objname" 4 }}`, "73d0"},
		"sha3short is never longer than the hash": {`{{ sha3short "objname" 100 | len }}`, "64"},
		"shortHash is that of the placeholders":   {`{{ shortHash "objname" }}`, ShortHash("objname")},
		"the hash of a missing field":             {`{{ .Object.metadata.missing | sha3short }}`, sha3ShortOf(t, "")},
		"the hash of a number":                    {`{{ .Object.spec.count | sha3short }}`, sha3ShortOf(t, "3")},
		"text is not escaped":                     {"{{ .Object.spec.text }}", `<a href="x">&'`},
		"the value of a path":                     {"{{ .Value.String | upper }}", "OF THE PATH"},
		"the value of a path without String":      {"{{ .Value }}", "of the path"},
		"sprig":                                   {`{{ .Object.spec.list | join "," | quote }}`, `"a,b"`},
		"sprig's numbers":                         {`{{ add .Object.spec.count 2 }}`, "5"},
		"sprig's bounded functions":               {`{{ repeat 2 "ab" }}{{ indent 2 "x" }}{{ replace "a" "b" "aa" }}{{ until 3 }}{{ untilStep 4 0 -2 }}{{ list 1 1 | uniq }}`, "abab  xbb[0 1 2][4 2][1]"},
		"sprig's regular expressions":             {`{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W" }} {{ regexReplaceAllLiteral "a" "a" "$1" }}`, "-W-xxW- $1"},
		"formats":                                 {`{{ printf "%05d|%-4s|%.2f|%[1]d" 7 "x" 1.5 }}`, "00007|x   |1.50|7"},
		"loops and nested templates":              {`{{ define "t" }}<{{ . }}>{{ end }}{{ range .Object.spec.list }}{{ template "t" . }}{{ else }}none{{ end }}`, "<a><b>"},
		"loops in conditions":                     {`{{ if true }}{{ with .Object }}{{ range .spec.list }}{{ . }}{{ break }}{{ end }}{{ end }}{{ end }}`, "a"},
		"a missing field":                         {`{{ .Object.spec.missing }}`, NoValue},
		"the default of a missing field":          {`{{ .Object.spec.missing | default "d" }}`, "d"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time from the cache
				got, err := Render(tt.template, data)
				if err != nil || got != tt.want {
					t.Errorf("got %q, %v, want %q", got, err, tt.want)
				}
			}
		})
	}
}

func sha3ShortOf(t *testing.T, s string) string {
	short, err := sha3short(s)
	if err != nil {
		t.Fatal(err)
	}
	return short
}

func TestTemplatesAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxText/2)
	list := make([]any, 2*maxIterations)
	for i := range list {
		list[i] = "x"
	}
	data := map[string]any{"Long": long, "List": list, "Map": map[string]any{}, "Number": int64(1) << 40}
	for name, tt := range map[string]struct{ template, want string }{
		"syntax":                        {"{{ .Object", "unclosed action"},
		"unknown function":              {"{{ nothing }}", `"nothing" not defined`},
		"hash of a map":                 {"{{ sha3sum .Map }}", "cannot hash a map"},
		"sha3short of no digits":        {`{{ sha3short "x" 0 }}`, "must be positive"},
		"fail":                          {`{{ fail "not like that" }}`, "not like that"},
		"long output":                   {`{{ .Long }}{{ .Long }}{{ .Long }}`, errTooLong.Error()},
		"long loop":                     {`{{ range .List }}{{ end }}`, "iterations"},
		"loop over a number":            {`{{ range .Number }}{{ end }}`, "iterations"},
		"nested loops":                  {`{{ range 200 }}{{ range 200 }}{{ end }}{{ end }}`, "iterations"},
		"recursion":                     {`{{ define "a" }}{{ template "a" . }}{{ template "a" . }}{{ end }}{{ template "a" . }}`, "iterations"},
		"recursion of the template":     {`{{ template "template" . }}`, "iterations"},
		"text that doubles":             {`{{ $x := "x" }}{{ range 100 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`, "more than"},
		"lists that double":             {`{{ $x := list 1 }}{{ range 100 }}{{ $x = concat $x $x }}{{ end }}`, "more than"},
		"repeat":                        {`{{ repeat 1000000000 "x" }}`, "longer than"},
		"repeat of a negative number":   {`{{ repeat -1 "x" }}`, "negative"},
		"indent":                        {`{{ indent 1000000000 "x" }}`, "longer than"},
		"nindent":                       {`{{ nindent 1000000000 "x" }}`, "longer than"},
		"replace":                       {`{{ replace "x" .Long .Long }}`, "longer than"},
		"join":                          {`{{ join .Long .List }}`, "longer than"},
		"wrapWith":                      {`{{ wrapWith 1 .Long .Long }}`, "longer than"},
		"until":                         {`{{ until 1000000000 }}`, "more than"},
		"until of a negative number":    {`{{ until -1000000000 }}`, "more than"},
		"untilStep":                     {`{{ untilStep -9223372036854775807 9223372036854775807 1 }}`, "more than"},
		"uniq":                          {`{{ uniq .List }}`, "more than"},
		"regexReplaceAll":               {`{{ regexReplaceAll "x" .Long .Long }}`, "longer than"},
		"regexReplaceAll of groups":     {`{{ regexReplaceAll "x+" .Long "$0$0$0$0" }}`, "longer than"},
		"printf with a width":           {`{{ printf "%1000000d" 1 }}`, "width"},
		"printf with a precision":       {`{{ printf "%.1000000f" 1.0 }}`, "width"},
		"printf with a width behind []": {`{{ printf "%[1]1000000d" 1 }}`, "width"},
		"printf with a width argument":  {`{{ printf "%*d" 1000000 1 }}`, "width"},
		"printf with a long format":     {`{{ printf .Long }}`, "longer than"},
		"panics of functions":           {`{{ substr 5 2 "x" | trunc 1 }}`, "out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Render(tt.template, data)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.80q, error %v, want an error with %q", got, err, tt.want)
			}
		})
	}
}

// TestFunctionsOfSprigAreChosen fails for a new version of sprig until a developer has classified its new functions.
func TestFunctionsOfSprigAreChosen(t *testing.T) {
	refused := strings.Fields(`
		env expandenv getHostByName
		ago date date_in_zone date_modify dateInZone dateModify durationRound htmlDate htmlDateInZone must_date_modify
		mustDateModify mustToDate now toDate unixEpoch
		randAlphaNum randAlpha randAscii randNumeric randInt randBytes shuffle uuidv4
		bcrypt htpasswd genPrivateKey derivePassword buildCustomCert genCA genCAWithKey genSelfSignedCert
		genSelfSignedCertWithKey genSignedCert genSignedCertWithKey encryptAES decryptAES
		set unset merge mergeOverwrite mustMerge mustMergeOverwrite
		hello seq`)
	available := functions()
	for name := range sprig.TxtFuncMap() {
		if _, found := available[name]; found == slices.Contains(refused, name) {
			t.Errorf("%s: available %v, refused %v", name, found, !found)
		}
	}
	for _, name := range refused {
		if _, err := Render("{{ "+name+" }}", nil); err == nil || !strings.Contains(err.Error(), "not defined") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, text := range []string{
		"{{ .Object.metadata.namespace | sha3short }}", `{{ range $i, $e := .List }}{{ $i }}{{ else }}x{{ end }}`,
		`{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`, `{{ with .Value.Get "a.#.b" }}{{ . }}{{ end }}`,
		`{{ printf "%v" .Object | trunc 5 | replace "a" "b" }}`, `{{ if and .List (gt (len .List) 1) }}{{ index .List 0 }}{{ end }}`,
	} {
		f.Add(text, "value")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		data := map[string]any{
			"Object": map[string]any{"metadata": map[string]any{"namespace": value}},
			"List":   []any{value, int64(1), nil}, "Value": gjson.Parse(value),
		}
		out, err := Render(text, data)
		if err != nil {
			return
		}
		if again, err := Render(text, data); err != nil || again != out {
			t.Errorf("%q is %q once, then %q, %v", text, out, again, err)
		}
		if len(out) > maxText || out != strings.TrimSpace(out) {
			t.Errorf("output of %d bytes", len(out))
		}
	})
}

func TestTemplatesDoNotReachTheEnvironment(t *testing.T) {
	t.Setenv("ATOLL_EXPRESSION_TEST", "secret")
	out, err := Render("${ATOLL_EXPRESSION_TEST} $ATOLL_EXPRESSION_TEST", nil)
	if err != nil || strings.Contains(out, os.Getenv("ATOLL_EXPRESSION_TEST")) {
		t.Errorf("got %q, %v", out, err)
	}
}
