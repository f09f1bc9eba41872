package shards_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/shards"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// runReader keeps an index in sync with the shared index until the test ends.
func runReader(t *testing.T, o *sharedindex.Options, subset shards.Subset) (*index.Index, *workspacetypes.Registry) {
	t.Helper()
	idx := index.New()
	types := workspacetypes.New(idx)
	s := shards.NewSharedIndexReader(o, idx, subset, types)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := s.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return idx, types
}

func expectResolution(t *testing.T, idx *index.Index, path string, want index.Resolution, cluster string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s resolves to %q", path, cluster), func(context.Context) error {
		route, got := idx.Load().Resolve(logicalcluster.MustParsePath(path))
		if got != want || route.Cluster.String() != cluster {
			return fmt.Errorf("%+v, resolution %d", route, got)
		}
		return nil
	})
}

func expectShard(t *testing.T, idx *index.Index, path, want string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s leads to shard %s", path, want), func(context.Context) error {
		route, got := idx.Load().Resolve(logicalcluster.MustParsePath(path))
		if got != index.Found || route.Shard.Name != want {
			return fmt.Errorf("%+v, resolution %d", route, got)
		}
		return nil
	})
}

// TestSharedIndexReaderWithShard reads what a real shard writes, while it runs and when it is down.
func TestSharedIndexReaderWithShard(t *testing.T) {
	e := indextesting.Start(t)
	o := e.Options()
	shard := shardtesting.Start(t, func(opts *options.Options) { opts.SharedIndex = o })
	early := shard.NewWorkspace(t, "root", "early")
	running, registry := runReader(t, o, shards.Subset{})
	expectResolution(t, running, "root:early", index.Found, early.Spec.Cluster)
	late := shard.NewWorkspace(t, early.Spec.Cluster, "late")
	expectResolution(t, running, "root:early:late", index.Found, late.Spec.Cluster)
	route, _ := running.Load().Resolve(logicalcluster.MustParsePath("root:early:late"))
	if route.Type != "root:universal" || route.Shard.Name != "root" || route.Shard.BaseURL == nil {
		t.Errorf("%+v", route)
	}

	// A workspace type with issuers.
	c := shard.Client(t, shard.Admin(t))
	configuration := &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "ours"}}
	must(t, json.Unmarshal([]byte(`{"jwt":[{"issuer":{"url":"https://issuer.example","audiences":["a"]},"claimMappings":{"username":{"claim":"sub","prefix":""}}}]}`), &configuration.Spec))
	must(t, c.Create(shardtesting.In(t.Context(), "root"), configuration))
	workspaceType := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "branded"}}
	workspaceType.Spec.AuthenticationConfigurations = []tenancyv1alpha1.AuthenticationConfigurationReference{{Name: "ours"}}
	must(t, c.Create(shardtesting.In(t.Context(), "root"), workspaceType))
	shardtesting.Eventually(t, "the issuers of the type are in the registry", func(context.Context) error {
		if issuers := registry.Issuers("root:branded"); len(issuers) != 1 || issuers[0].Issuer.URL != "https://issuer.example" {
			return fmt.Errorf("%+v", issuers)
		}
		return nil
	})

	// A logical cluster that the shard hands over to another one, which reports it.
	moving := shard.NewWorkspace(t, "root", "moving")
	expectResolution(t, running, "root:moving", index.Found, moving.Spec.Cluster)
	running.SetShard(index.Shard{Name: "beta", BaseURL: &url.URL{Scheme: "https", Host: "beta.example"}})
	running.PutCluster("beta", index.Cluster{Name: logicalcluster.MustParseName(moving.Spec.Cluster)})
	expectShard(t, running, "root:moving", "root")
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"beta"}}}`, corev1alpha1.MovedToAnnotationKey)
	must(t, shard.Client(t, shard.Masters(t)).Patch(shardtesting.In(t.Context(), moving.Spec.Cluster), &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}, client.RawPatch(types.MergePatchType, patch)))
	expectShard(t, running, "root:moving", "beta")
	expectShard(t, running, moving.Spec.Cluster, "beta")
	running.RemoveShard("beta")

	// A proxy for other shards does not serve it.
	otherShards, _ := runReader(t, o, shards.Subset{Names: []string{"other"}})
	expectResolution(t, otherShards, "root:early", index.NotFound, "")
	expectResolution(t, otherShards, "root:unknown", index.NotFound, "")

	must(t, shard.Stop())
	afterStop, _ := runReader(t, o, shards.Subset{})
	expectResolution(t, afterStop, "root:early:late", index.Found, late.Spec.Cluster)
	expectResolution(t, afterStop, "root:unknown", index.NotFound, "")
	expectResolution(t, running, "root:early:late", index.Found, late.Spec.Cluster)

	// A deletion after the restart of the shard is read.
	restarted := shardtesting.StartIn(t, shard.Directory, func(opts *options.Options) { opts.SharedIndex = o })
	c = restarted.Client(t, restarted.Admin(t))
	must(t, c.Delete(shardtesting.In(t.Context(), early.Spec.Cluster), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "late"}}))
	expectResolution(t, running, late.Spec.Cluster, index.NotFound, "")
	expectResolution(t, running, "root:early:late", index.NotFound, "")
}
