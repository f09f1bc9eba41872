package proxy

import (
	"net/http"
	"testing"
)

func TestMountURLs(t *testing.T) {
	for in, ok := range map[string]bool{
		"https://far.example": true, "https://far.example:6443/base/": true,
		"http://far.example": false, "https://": false, "far.example": false, "": false, "https://u:p@far.example": false,
		"https://far.example/?x=": false, "https://far.example/#x": false, "file:///etc": false, "https://far.example/%zz": false,
	} {
		if _, err := mountURL(in); (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestWithoutCredentials(t *testing.T) {
	header := http.Header{
		"Authorization": {"Bearer x"}, "authorization": {"Bearer y"}, "Cookie": {"a=b"}, "Proxy-Authorization": {"Basic x"},
		"Accept": {"application/json"}, "Impersonate-User": {"carol"},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io", "other"},
	}
	withoutCredentials(header)
	if len(header) != 3 || header.Get("Sec-WebSocket-Protocol") != "v5.channel.k8s.io, other" || header.Get("Accept") == "" || header.Get("Impersonate-User") == "" {
		t.Errorf("left %v", header)
	}
	only := http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA"}}
	if withoutCredentials(only); len(only) != 0 {
		t.Errorf("left %v", only)
	}
}
