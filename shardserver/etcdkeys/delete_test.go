package etcdkeys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// TestDelete deletes objects beside those of logical clusters, namespaces, resources and identities whose names begin or end alike.
func TestDelete(t *testing.T) {
	server := etcdtest.Start(t)
	identity, other := strings.Repeat("a", identityLength), strings.Repeat("a", identityLength-1)+"b"
	resource := func(group, name, prefix string, namespaced bool) *storage.Resource {
		return &storage.Resource{GVR: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, Prefix: prefix, Namespaced: namespaced}
	}
	maps, accounts := resource("", "configmaps", "/core/configmaps", true), resource("", "serviceaccounts", "/core/serviceaccounts", true)
	namespaces := resource("", "namespaces", "/core/namespaces", false)
	widgets := resource("example.com", "widgets", "/example.com/widgets/"+identity, false)
	clusters := resource("core.kcp.io", "logicalclusters", "/core.kcp.io/logicalclusters/customresources", false)
	registry := storage.NewRegistry(storage.Locality{})
	for _, r := range []*storage.Resource{maps, accounts, namespaces, clusters} {
		registry.Add(r)
	}
	s := New(Config{Prefix: "/registry", Registry: registry, Transport: storagebackend.TransportConfig{
		ServerList: []string{server.Endpoint}, TrustedCAFile: server.CAFile, CertFile: server.CertFile, KeyFile: server.KeyFile,
	}})
	defer s.Close()
	client := etcdtest.NewClient(t, server)
	revisions := map[string]string{}
	put := func(key string) int64 {
		t.Helper()
		response, err := client.Put(t.Context(), "/registry/"+key, "value")
		if err != nil {
			t.Fatal(err)
		}
		revisions[key] = strconv.FormatInt(response.Header.Revision, 10)
		return response.Header.Revision
	}
	keys := func() (all []string) {
		t.Helper()
		response, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range response.Kvs {
			all = append(all, strings.TrimPrefix(string(kv.Key), "/registry/"))
		}
		return all
	}
	const root = "core.kcp.io/logicalclusters/customresources/"
	put(root + "ab/cluster")
	neighbours := []string{
		"core/configmaps/a/n/x", "core/configmaps/abc/n/x", "core/configmaps/ab-/n/x", "core/configmaps/ab/n-2/x", "core/secrets/ab/n/x-2", "core/configmaps-2/ab/n/x",
		"core/configmaps/" + identity + "/ab/n/x", "core/serviceaccounts/abc/n/x", "core/namespaces/abc/n", "core/namespaces/ab/n-2", "core/namespaces/a/n",
		"example.com/widgets/" + other + "/ab/w", "example.com/widgets/" + identity + "/abc/w", "example.com/widgets/customresources/ab/w",
	}
	for _, key := range neighbours {
		put(key)
	}
	own := []string{"core/configmaps/ab/n/x", "core/serviceaccounts/ab/n/x", "core/namespaces/ab/n", "example.com/widgets/" + identity + "/ab/w"}
	for _, key := range own {
		put(key)
	}
	deletions := []storage.Deletion{
		{Resource: maps, Namespace: "n", Name: "x", ResourceVersion: revisions[own[0]]},
		{Resource: accounts, Namespace: "n", Name: "x", ResourceVersion: revisions[own[1]]},
		{Resource: namespaces, Name: "n", ResourceVersion: revisions[own[2]], Empty: []*storage.Resource{maps, accounts}, EmptyNamespace: "n"},
		{Resource: widgets, Name: "w", ResourceVersion: revisions[own[3]]},
	}
	now := metav1.NewTime(time.Now())
	seen := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", ResourceVersion: revisions[root+"ab/cluster"], DeletionTimestamp: &now}}
	ctx := logicalcluster.With(t.Context(), logicalcluster.MustParseName("ab"))
	check := func(name string, got []bool, err error, want ...bool) {
		t.Helper()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: deleted %v, %v, want %v", name, got, err, want)
		}
	}

	for name, tc := range map[string]struct {
		seen     func(*corev1alpha1.LogicalCluster)
		deletion storage.Deletion
		want     string
	}{
		"of a logical cluster that is not deleted": {func(c *corev1alpha1.LogicalCluster) { c.DeletionTimestamp = nil }, deletions[0], "it is not being deleted"},
		"of one that was created again":            {func(c *corev1alpha1.LogicalCluster) { c.ResourceVersion = "1" }, deletions[0], errFenced.Error()},
		"of a namespace of another one":            {nil, storage.Deletion{Resource: maps, Namespace: "../abc/n", Name: "x", ResourceVersion: "9"}, "not the name of an object"},
		"without a name":                           {nil, storage.Deletion{Resource: namespaces, ResourceVersion: "9"}, "not the name of an object"},
		"of the parent":                            {nil, storage.Deletion{Resource: maps, Namespace: "n", Name: "..", ResourceVersion: "9"}, "not the name of an object"},
		"without a version":                        {nil, storage.Deletion{Resource: maps, Namespace: "n", Name: "x"}, "not the resource version of an object"},
	} {
		cluster := seen.DeepCopy()
		if tc.seen != nil {
			tc.seen(cluster)
		}
		if _, err := s.Delete(ctx, cluster, []storage.Deletion{tc.deletion}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
	before := keys()
	registry.SetMoves(storage.Moves{Guard: refusingGuard{}})
	if _, err := s.Delete(ctx, seen, deletions[:1]); !errors.Is(err, errMoving) {
		t.Errorf("of a logical cluster that moves: got %v", err)
	}
	registry.SetMoves(storage.Moves{})
	// etcd refuses a request that is too large: what is from it on remains for requests.
	large := storage.Deletion{Resource: maps, Namespace: "n", Name: strings.Repeat("x", 4<<20), ResourceVersion: "9"}
	refused, err := s.Delete(ctx, seen, []storage.Deletion{large, deletions[0]})
	check("one that etcd refuses", refused, err, false, false)
	if left := keys(); !slices.Equal(left, before) {
		t.Errorf("refused deletions have left %q of %q", left, before)
	}
	begun := put(own[0]) // changed since it was read: the namespace is not empty then
	got, err := s.Delete(ctx, seen, deletions[:3])
	check("one that has changed", got, err, false, true, false)
	deletions[0].ResourceVersion = revisions[own[0]]
	got, err = s.Delete(ctx, seen, slices.Concat(deletions[:1], deletions[2:]))
	check("the rest", got, err, true, true, true)
	want := slices.DeleteFunc(before, func(key string) bool { return slices.Contains(own, key) })
	if left := keys(); !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	last, err := client.Get(t.Context(), "/registry/none")
	if err != nil {
		t.Fatal(err)
	}
	if count := last.Header.Revision - begun; count != 3 { // account; map; namespace with widget
		t.Errorf("%d transactions have deleted something, want 3", count)
	}

	// Of a deletion whose fence is lost meanwhile, the caller knows what is deleted.
	key := "core/configmaps/ab/n/last"
	put(key)
	registry.SetMoves(storage.Moves{Guard: lostGuard{}})
	got, err = s.Delete(ctx, seen, []storage.Deletion{{Resource: maps, Namespace: "n", Name: "last", ResourceVersion: revisions[key]}})
	if !errors.Is(err, errMoving) || !slices.Equal(got, []bool{true}) {
		t.Errorf("during which the logical cluster moves: deleted %v, %v", got, err)
	}
	registry.SetMoves(storage.Moves{})

	var many []storage.Deletion
	for i := range transactionsPerCall + 3 {
		name := fmt.Sprint("many-", i)
		put("core/configmaps/ab/n/" + name)
		many = append(many, storage.Deletion{Resource: maps, Namespace: "n", Name: name, ResourceVersion: revisions["core/configmaps/ab/n/"+name]})
	}
	got, err = s.Delete(ctx, seen, many)
	check("more than one call deletes", got, err, slices.Concat(slices.Repeat([]bool{true}, transactionsPerCall), make([]bool, 3))...)
}

// lostGuard admits writes, and does not acknowledge them.
type lostGuard struct{ storage.Guard }

func (lostGuard) Enter(context.Context, logicalcluster.Name) (func() error, error) {
	return func() error { return errMoving }, nil
}

var errMoving = errors.New("the logical cluster moves")

// refusingGuard refuses all writes.
type refusingGuard struct{ storage.Guard }

func (refusingGuard) Enter(context.Context, logicalcluster.Name) (func() error, error) {
	return nil, errMoving
}

func TestLengthOfTransaction(t *testing.T) {
	maps, accounts := &storage.Resource{Prefix: "/core/configmaps"}, &storage.Resource{Prefix: "/core/serviceaccounts"}
	namespaces := &storage.Resource{Prefix: "/core/namespaces"}
	in := func(resource *storage.Resource, namespace string) storage.Deletion {
		return storage.Deletion{Resource: resource, Namespace: namespace}
	}
	namespace := func(name string) storage.Deletion {
		return storage.Deletion{Resource: namespaces, Name: name, Empty: []*storage.Resource{maps}, EmptyNamespace: name}
	}
	many := make([]storage.Deletion, 0, 2*deletionsPerTransaction)
	for i := range cap(many) {
		many = append(many, in(&storage.Resource{Prefix: fmt.Sprint("/", i)}, ""))
	}
	for name, tc := range map[string]struct {
		deletions []storage.Deletion
		want      int
	}{
		"different resources":                     {[]storage.Deletion{in(maps, "a"), in(accounts, "a")}, 2},
		"two of one resource":                     {[]storage.Deletion{in(maps, "a"), in(accounts, "a"), in(maps, "b")}, 2},
		"a namespace after its content":           {[]storage.Deletion{in(maps, "a"), namespace("a")}, 1},
		"a namespace after content of another":    {[]storage.Deletion{in(maps, "b"), namespace("a")}, 2},
		"a namespace after content of no concern": {[]storage.Deletion{in(accounts, "a"), namespace("a")}, 2},
		"many": {many, deletionsPerTransaction},
	} {
		if got := lengthOfTransaction(tc.deletions); got != tc.want {
			t.Errorf("%s: %d deletions share a transaction, want %d", name, got, tc.want)
		}
	}
}
