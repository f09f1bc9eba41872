package etcd

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// lookupTimeout bounds the time of a reconcile that waits for DNS.
const lookupTimeout = 2 * time.Second

// LookupFunc returns the addresses of a host, as net.Resolver.LookupHost does.
type LookupFunc func(ctx context.Context, host string) ([]string, error)

// FindUnknownHosts returns the hosts of endpoints that DNS does not resolve, sorted. A name without a dot is one of a Service in the
// namespace. It leaves out hosts for which DNS does not respond in time.
func FindUnknownHosts(ctx context.Context, lookup LookupFunc, namespace string, endpoints []string) []string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var out []string
	for _, endpoint := range endpoints {
		parsed, err := url.Parse(endpoint)
		if err != nil || parsed.Hostname() == "" || net.ParseIP(parsed.Hostname()) != nil {
			continue
		}
		host := parsed.Hostname()
		name := host
		if !strings.Contains(host, ".") {
			name = host + "." + namespace + ".svc"
		}
		_, err = lookup(ctx, name)
		var unknown *net.DNSError
		if errors.As(err, &unknown) && unknown.IsNotFound {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
