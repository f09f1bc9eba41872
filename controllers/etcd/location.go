package etcd

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

// sharedIndexPrefix is the default prefix of the shared index.
const sharedIndexPrefix = "/kcp-index"

// Location is a prefix in an etcd.
type Location struct {
	Servers []string
	Prefix  string
}

// Usage is a location where a custom resource stores data that no other may share.
type Usage struct {
	Kind      string
	Object    metav1.Object
	Domain    string // of the DNS of the cluster
	Locations []Location
}

// String describes the usage to users: "Shard kcp/alpha".
func (u Usage) String() string {
	return u.Kind + " " + u.Object.GetNamespace() + "/" + u.Object.GetName()
}

// RootShardUsage is the usage of a RootShard: that of its shard, of the cache that it embeds, and of the shared index of
// its installation.
func RootShardUsage(root *operatorv1alpha1.RootShard) Usage {
	shard := desired.NewRootShard(root)
	location := newLocation(shard.AsOwner(), root.Spec.Etcd, reservedkeys.DefaultShardPrefix)
	out := Usage{Kind: "RootShard", Object: root, Domain: shard.ClusterDomain(), Locations: []Location{location}}
	if name, _ := shard.CacheRef(); name == "" {
		out.Locations = append(out.Locations, Location{Servers: location.Servers, Prefix: reservedkeys.EmbeddedCache(location.Prefix)})
	}
	if index := root.Spec.SharedIndex; index != nil {
		out.Locations = append(out.Locations, Location{Servers: index.Endpoints, Prefix: cleanPrefix(index.Prefix, sharedIndexPrefix)})
	}
	return out
}

// ShardUsage is the usage of a Shard.
func ShardUsage(shard *operatorv1alpha1.Shard) Usage {
	owner := desired.Owner{Name: shard.Name, Namespace: shard.Namespace, Domain: desired.NewShard(shard, nil).ClusterDomain()}
	return Usage{Kind: "Shard", Object: shard, Domain: owner.Domain, Locations: []Location{newLocation(owner, shard.Spec.Etcd, reservedkeys.DefaultShardPrefix)}}
}

// CacheServerUsage is the usage of a CacheServer. An embedded store is in its pod.
func CacheServerUsage(cache *operatorv1alpha1.CacheServer) Usage {
	server := desired.NewCacheServer(cache)
	out := Usage{Kind: "CacheServer", Object: cache, Domain: server.ClusterDomain()}
	if !server.IsEmbedded() {
		out.Locations = append(out.Locations, newLocation(server.AsOwner(), cache.Spec.Etcd, reservedkeys.DefaultCachePrefix))
	}
	return out
}

func newLocation(owner desired.Owner, spec *operatorv1alpha1.EtcdConfig, fallback string) Location {
	connection := Connection(owner, spec)
	if IsManaged(spec) {
		service := desired.ServiceHost(New(owner, spec, nil).clientService(), owner.Namespace, owner.Domain)
		connection.Servers = append(connection.Servers, fmt.Sprintf("https://%s:%d", service, clientPort))
	}
	return Location{Servers: connection.Servers, Prefix: cleanPrefix(connection.Prefix, fallback)}
}

func cleanPrefix(prefix, fallback string) string {
	if prefix == "" {
		return fallback
	}
	return path.Join("/", prefix)
}

// Conflict is a location that two custom resources have in common.
type Conflict struct {
	With     Usage
	Location Location
}

// FindConflict returns the conflict that prevents self from using its locations: the older of two custom resources with a common location
// may use it. Different addresses of one etcd are recognized only if they name the same Service.
func FindConflict(self Usage, others []Usage) *Conflict {
	for _, other := range others {
		if !isOlder(other, self) {
			continue
		}
		for _, mine := range self.Locations {
			for _, theirs := range other.Locations {
				if mine.Prefix == theirs.Prefix && haveCommon(self.addresses(mine), other.addresses(theirs)) {
					return &Conflict{With: other, Location: mine}
				}
			}
		}
	}
	return nil
}

// isOlder is a total order of custom resources.
func isOlder(a, b Usage) bool {
	if created := a.Object.GetCreationTimestamp().Compare(b.Object.GetCreationTimestamp().Time); created != 0 {
		return created < 0
	}
	return cmp.Compare(a.String(), b.String()) < 0
}

func haveCommon(a, b []string) bool {
	return slices.ContainsFunc(a, func(server string) bool { return slices.Contains(b, server) })
}

// addresses are the host and port of the servers of a location, with one spelling for each Service.
func (u Usage) addresses(location Location) []string {
	var out []string
	for _, server := range location.Servers {
		parsed, err := url.Parse(server)
		if err != nil || parsed.Host == "" {
			continue
		}
		port := parsed.Port()
		if port == "" {
			port = fmt.Sprint(clientPort)
		}
		out = append(out, net.JoinHostPort(u.canonicalHost(parsed.Hostname()), port))
	}
	return out
}

// canonicalHost completes the short names of Services. A public name of two labels may become another name, which is the same for all
// custom resources.
func (u Usage) canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if net.ParseIP(host) != nil {
		return host
	}
	host = strings.TrimSuffix(host, "."+strings.ToLower(u.Domain))
	host = strings.TrimSuffix(host, ".svc")
	if !strings.Contains(host, ".") {
		host += "." + u.Object.GetNamespace()
	}
	return host
}
