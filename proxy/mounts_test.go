package proxy

import (
	"net/http"
	"testing"
)

func TestParseMountURL(t *testing.T) {
	for in, ok := range map[string]bool{
		"https://mount.example": true, "https://mount.example:6443/base/": true,
		"http://mount.example": false, "https://": false, "mount.example": false, "": false, "https://u:p@mount.example": false,
		"https://mount.example/?x=": false, "https://mount.example/#x": false, "file:///etc": false, "https://mount.example/%zz": false,
	} {
		if _, err := parseMountURL(in); (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestRemoveCredentials(t *testing.T) {
	header := http.Header{
		"Authorization": {"Bearer x"}, "authorization": {"Bearer y"}, "Cookie": {"a=b"}, "Proxy-Authorization": {"Basic x"},
		"Accept": {"application/json"}, "Impersonate-User": {"carol"},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io", "other"},
	}
	removeCredentials(header)
	if len(header) != 3 || header.Get("Sec-WebSocket-Protocol") != "v5.channel.k8s.io, other" || header.Get("Accept") == "" || header.Get("Impersonate-User") == "" {
		t.Errorf("left %v", header)
	}
	only := http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA"}}
	if removeCredentials(only); len(only) != 0 {
		t.Errorf("left %v", only)
	}
}
