package shards_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/shards"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
)

// read fills an index from the shared one until the test ends.
func read(t *testing.T, o *sharedindex.Options, subset shards.Subset) (*index.Index, *workspacetypes.Catalog) {
	t.Helper()
	idx := index.New()
	types := workspacetypes.New(idx)
	s := shards.NewShared(o, idx, subset, types)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := s.WaitForShards(ctx); err != nil {
		t.Fatal(err)
	}
	return idx, types
}

func leads(t *testing.T, idx *index.Index, path string, verdict index.Verdict, cluster string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s leads to %q", path, cluster), func(context.Context) error {
		route, got := idx.Load().Lookup(logicalcluster.MustParsePath(path))
		if got != verdict || route.Cluster.String() != cluster {
			return fmt.Errorf("%+v, verdict %d", route, got)
		}
		return nil
	})
}

// TestWhatARealShardWritesIsRead, while the shard runs, and when it is down.
func TestWhatARealShardWritesIsRead(t *testing.T) {
	e := indextesting.Start(t)
	o := e.Options()
	shard := shardtesting.Start(t, func(opts *options.Options) { opts.SharedIndex = o })
	early := shard.NewWorkspace(t, "root", "early")
	running, types := read(t, o, shards.Subset{})
	leads(t, running, "root:early", index.Found, early.Spec.Cluster)
	late := shard.NewWorkspace(t, early.Spec.Cluster, "late")
	leads(t, running, "root:early:late", index.Found, late.Spec.Cluster)
	route, _ := running.Load().Lookup(logicalcluster.MustParsePath("root:early:late"))
	if route.Type != "root:universal" || route.Shard.Name != "root" || route.Shard.BaseURL == nil {
		t.Errorf("%+v", route)
	}

	// A workspace type with issuers.
	c := shard.Client(t, shard.Admin(t))
	configuration := &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "ours"}}
	must(t, json.Unmarshal([]byte(`{"jwt":[{"issuer":{"url":"https://issuer.example","audiences":["a"]},"claimMappings":{"username":{"claim":"sub","prefix":""}}}]}`), &configuration.Spec))
	must(t, c.Create(shardtesting.In(t.Context(), "root"), configuration))
	kind := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "branded"}}
	kind.Spec.AuthenticationConfigurations = []tenancyv1alpha1.AuthenticationConfigurationReference{{Name: "ours"}}
	must(t, c.Create(shardtesting.In(t.Context(), "root"), kind))
	shardtesting.Eventually(t, "the issuers of a type are known", func(context.Context) error {
		if issuers := types.Issuers("root:branded"); len(issuers) != 1 || issuers[0].Issuer.URL != "https://issuer.example" {
			return fmt.Errorf("%+v", issuers)
		}
		return nil
	})

	// A proxy for other shards knows of it, and does not lead to it.
	elsewhere, _ := read(t, o, shards.Subset{Names: []string{"other"}})
	leads(t, elsewhere, "root:early", index.NotFound, "")
	leads(t, elsewhere, "root:nobody", index.NotFound, "")

	must(t, shard.Stop())
	late2, _ := read(t, o, shards.Subset{})
	leads(t, late2, "root:early:late", index.Found, late.Spec.Cluster)
	leads(t, late2, "root:nobody", index.NotFound, "")
	leads(t, running, "root:early:late", index.Found, late.Spec.Cluster)

	// What is deleted while it is down is not; what is deleted when it is back is gone.
	again := shardtesting.StartIn(t, shard.Directory, func(opts *options.Options) { opts.SharedIndex = o })
	c = again.Client(t, again.Admin(t))
	must(t, c.Delete(shardtesting.In(t.Context(), early.Spec.Cluster), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "late"}}))
	leads(t, running, late.Spec.Cluster, index.NotFound, "")
	leads(t, running, "root:early:late", index.NotFound, "")
}
