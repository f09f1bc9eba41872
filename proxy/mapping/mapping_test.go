package mapping

import (
	"strings"
	"testing"
)

const whole = `
- path: /clusters/
  backend: https://root:6443
  backend_server_ca: ca.crt
  proxy_client_cert: c.crt
  proxy_client_key: c.key
`

func TestParse(t *testing.T) {
	for sentence, tc := range map[string]struct {
		in   string
		want string // part of the error; "" for none
	}{
		"accepts one entry":                  {whole, ""},
		"accepts all fields":                 {whole + "  user_header: U\n  group_header: G\n  extra_header_prefix: E-\n", ""},
		"accepts placeholders":               {whole + strings.ReplaceAll(whole, "/clusters/", "/a/{cluster}/b"), ""},
		"accepts a fallback":                 {whole + strings.ReplaceAll(whole, "/clusters/", "/"), ""},
		"refuses nothing":                    {"", "no entries"},
		"refuses an empty list":              {"[]", "no entries"},
		"refuses what is no list":            {"path: /x", "cannot unmarshal object"},
		"names an unknown field":             {whole + "  backend_ca: x\n", `unknown field "backend_ca"`},
		"names a missing field":              {strings.ReplaceAll(whole, "  proxy_client_key: c.key\n", ""), "proxy_client_key is required"},
		"names the entry":                    {whole + "- path: /x\n", `entry 1 (path "/x")`},
		"refuses a relative path":            {strings.ReplaceAll(whole, "/clusters/", "clusters"), "starts with /"},
		"refuses a backend without TLS":      {strings.ReplaceAll(whole, "https:", "http:"), "expected https://"},
		"refuses a backend without a host":   {strings.ReplaceAll(whole, "https://root:6443", "root"), "expected https://"},
		"refuses a backend with a query":     {strings.ReplaceAll(whole, ":6443", ":6443?a=b"), "expected https://"},
		"refuses the same path twice":        {whole + whole, "the same path"},
		"refuses the same path with a slash": {strings.ReplaceAll(whole, "/clusters/", "/x") + strings.ReplaceAll(whole, "/clusters/", "/x/"), "the same path"},
		"refuses a field twice":              {whole + "  backend: https://other\n", "already set"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := Parse([]byte(tc.in))
			if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDefaultHeaders(t *testing.T) {
	entries, err := Parse([]byte(whole + "  user_header: Who\n"))
	if err != nil {
		t.Fatal(err)
	}
	if h := entries[0].Headers(); h.User != "Who" || h.Group != "X-Remote-Group" || h.ExtraPrefix != "X-Remote-Extra-" {
		t.Errorf("%+v", h)
	}
	if !entries[0].Shards() {
		t.Error("/clusters/ is the entry of the shards")
	}
}
