package embeddedetcd_test

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
)

func TestComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		servers   string
		ca        string
		directory string // value of the flag
		root      string
		embedded  bool
		want      string // the directory, or a substring of the error
	}{
		"external etcd":                          {servers: "https://a:2379,http://b:2379", root: "/root"},
		"embedded etcd below the root directory": {servers: "embedded", root: "/root", embedded: true, want: "/root/etcd-server"},
		"embedded etcd in another directory":     {servers: "embedded", directory: "/data", root: "/root", embedded: true, want: "/data"},
		"embedded and external etcd":             {servers: "embedded,https://a:2379", root: "/root", want: "either \"embedded\" or URLs"},
		"invalid URL":                            {servers: "a", root: "/root", want: "got \"a\", want URLs"},
		"embedded etcd with credentials":         {servers: "embedded", ca: "ca.crt", root: "/root", want: "are for an etcd outside"},
		"embedded etcd without a directory":      {servers: "embedded", want: "--embedded-etcd-directory: required"},
	} {
		t.Run(name, func(t *testing.T) {
			config := embeddedetcd.NewConfig()
			config.Directory = tc.directory
			embedded, err := config.Complete(storagebackend.TransportConfig{ServerList: strings.Split(tc.servers, ","), TrustedCAFile: tc.ca}, tc.root)
			got := config.Directory
			if err != nil {
				got = err.Error()
			}
			if embedded != tc.embedded || !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
				t.Errorf("got %v, %q", embedded, got)
			}
		})
	}
}
