package etcd_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/atoll-dev/atoll/controllers/etcd"
)

func TestFindUnknownHosts(t *testing.T) {
	lookup := func(_ context.Context, host string) ([]string, error) {
		switch host {
		case "etcd.kcp.svc", "etcd.example.com":
			return []string{"192.0.2.1"}, nil
		case "slow.example.com":
			return nil, &net.DNSError{IsTimeout: true}
		case "broken.example.com":
			return nil, errors.New("refused")
		}
		return nil, &net.DNSError{IsNotFound: true}
	}
	for name, test := range map[string]struct{ endpoints, want []string }{
		"a Service of the namespace":      {[]string{"https://etcd:2379"}, nil},
		"a name of DNS":                   {[]string{"https://etcd.example.com:2379"}, nil},
		"addresses are not looked up":     {[]string{"https://192.0.2.7:2379", "https://[2001:db8::1]:2379"}, nil},
		"unknown ones, each once":         {[]string{"https://z:2379", "https://a.example.com:2379", "https://z:2380"}, []string{"a.example.com", "z"}},
		"DNS does not answer":             {[]string{"https://slow.example.com:2379", "https://broken.example.com:2379"}, nil},
		"validation reports what is none": {[]string{"://"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := etcd.FindUnknownHosts(t.Context(), lookup, "kcp", test.endpoints); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
