package mapping

import (
	"strings"
	"testing"
)

const valid = `
- path: /clusters/
  backend: https://root:6443
  backend_server_ca: ca.crt
  proxy_client_cert: c.crt
  proxy_client_key: c.key
`

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want string // part of the error; "" for none
	}{
		"accepts one entry":                  {valid, ""},
		"accepts all fields":                 {valid + "  user_header: U\n  group_header: G\n  extra_header_prefix: E-\n", ""},
		"accepts placeholders":               {valid + strings.ReplaceAll(valid, "/clusters/", "/a/{cluster}/b"), ""},
		"accepts a fallback":                 {valid + strings.ReplaceAll(valid, "/clusters/", "/"), ""},
		"refuses an empty file":              {"", "no entries"},
		"refuses an empty list":              {"[]", "no entries"},
		"refuses a value that is no list":    {"path: /x", "cannot unmarshal object"},
		"names an unknown field":             {valid + "  backend_ca: x\n", `unknown field "backend_ca"`},
		"names a missing field":              {strings.ReplaceAll(valid, "  proxy_client_key: c.key\n", ""), "proxy_client_key is required"},
		"names the entry":                    {valid + "- path: /x\n", `entry 1 (path "/x")`},
		"refuses a relative path":            {strings.ReplaceAll(valid, "/clusters/", "clusters"), "starts with /"},
		"refuses a backend without TLS":      {strings.ReplaceAll(valid, "https:", "http:"), "expected https://"},
		"refuses a backend without a host":   {strings.ReplaceAll(valid, "https://root:6443", "root"), "expected https://"},
		"refuses a backend with a query":     {strings.ReplaceAll(valid, ":6443", ":6443?a=b"), "expected https://"},
		"refuses the same path twice":        {valid + valid, "the same path"},
		"refuses the same path with a slash": {strings.ReplaceAll(valid, "/clusters/", "/x") + strings.ReplaceAll(valid, "/clusters/", "/x/"), "the same path"},
		"refuses a field twice":              {valid + "  backend: https://other\n", "already set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.in))
			if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDefaultHeaders(t *testing.T) {
	entries, err := Parse([]byte(valid + "  user_header: X-User\n"))
	if err != nil {
		t.Fatal(err)
	}
	if h := entries[0].Headers(); h.User != "X-User" || h.Group != "X-Remote-Group" || h.ExtraPrefix != "X-Remote-Extra-" {
		t.Errorf("%+v", h)
	}
	if !entries[0].IsShards() {
		t.Error("/clusters/ is the entry of the shards")
	}
}
