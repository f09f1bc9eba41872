package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/sharded"
)

// pollInterval is how often the state is read during a move.
const pollInterval = 100 * time.Millisecond

// moveProvider moves a workspace with an export that workspaces on all shards have bound.
func moveProvider(t *testing.T, e *env) {
	provider, c := e.workspace(t, "provider-moving", installation.Alpha)
	export := e.export(t, provider.Spec.Cluster, "sheriffs", "Sheriff")
	settled := e.newMaintained(t, c, export)
	consumers := map[string]string{}
	for _, shard := range e.Shards() {
		workspace, _ := e.workspace(t, "provider-consumer-"+shard, shard)
		consumers[shard] = workspace.Spec.Cluster
		e.bind(t, workspace.Spec.Cluster, export)
		e.create(t, export, workspace.Spec.Cluster, "before-"+shard)
	}
	e.waitEndpoints(t, export, e.Shards()...)
	published := e.publishedBy(t, export.cluster)
	for _, resource := range publishedResources {
		e.waitPublished(t, published, resource, installation.Alpha)
	}
	var informers []*viewInformer
	for _, shard := range e.Shards() {
		informers = append(informers, inform(t, e.viewClient(t, export, shard), export.GroupVersionResource))
	}

	stop := e.watchStates(t, export, consumers, published)
	e.moveTo(t, "provider", provider, c, installation.Beta)
	for _, resource := range publishedResources {
		e.waitPublished(t, published, resource, installation.Beta)
	}
	stop()
	e.waitEndpoints(t, export, e.Shards()...)
	for i, shard := range e.Shards() {
		e.create(t, export, consumers[shard], "after-"+shard)
		shardtesting.Eventually(t, "the new object in the view on "+shard, func(context.Context) error {
			if !informers[i].has("before-"+shard) || !informers[i].has("after-"+shard) {
				return fmt.Errorf("the informer has %v", informers[i].informer.GetStore().ListKeys())
			}
			return nil
		})
		informers[i].checkNoDeletions(t)
	}
	e.changeSchema(t, c, export, consumers)
	e.expectClaim(t, export, settled)
}

// newMaintained creates a workspace whose type binds an export and maintains the binding, and returns its logical cluster.
func (e *env) newMaintained(t *testing.T, c client.Client, export exported) string {
	t.Helper()
	workspaceType := &tenancyv1alpha1.WorkspaceType{
		ObjectMeta: metav1.ObjectMeta{Name: "town"},
		Spec: tenancyv1alpha1.WorkspaceTypeSpec{
			Extend:                     tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "universal", Path: "root"}}},
			DefaultAPIBindings:         []tenancyv1alpha1.APIExportReference{{Path: export.cluster, Export: export.name}},
			DefaultAPIBindingLifecycle: ptr.To(tenancyv1alpha1.APIBindingLifecycleModeMaintain),
		},
	}
	if err := c.Create(t.Context(), workspaceType); err != nil {
		t.Fatal(err)
	}
	ofType := func(w *tenancyv1alpha1.Workspace) {
		w.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "town", Path: export.cluster}
	}
	root := e.at(t, "root")
	shardtesting.Eventually(t, "the type on the shard of the Workspace", func(ctx context.Context) error {
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "provider-settled"}}
		ofType(workspace)
		return root.Create(ctx, workspace, client.DryRunAll)
	})
	e.NewWorkspace(t, "provider-settled", "tenant", shardtesting.OnShard(installation.Beta), ofType)
	return e.stored(t, "provider-settled").Spec.Cluster
}

// laterClaim is what an export claims after it has moved.
var laterClaim = apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "secrets"}, Verbs: []string{"get", "list"}}

// expectClaim waits until the maintained binding in a logical cluster has the later claim.
func (e *env) expectClaim(t *testing.T, export exported, cluster string) {
	t.Helper()
	everywhere := e.everywhere(t)
	shardtesting.EventuallyWithin(t, longWait, "the later claim in a maintained binding", func(ctx context.Context) error {
		all := &apisv1alpha2.APIBindingList{}
		if err := everywhere.List(shardtesting.In(ctx, cluster), all); err != nil {
			return err
		}
		for i := range all.Items {
			binding := &all.Items[i]
			if reference := binding.Spec.Reference.Export; reference == nil || reference.Name != export.name {
				continue
			}
			if !slices.ContainsFunc(binding.Status.AppliedPermissionClaims, func(claim apisv1alpha2.ScopedPermissionClaim) bool { return claim.Resource == laterClaim.Resource }) {
				return fmt.Errorf("applied claims %+v", binding.Status.AppliedPermissionClaims)
			}
			return isBound(binding)
		}
		return errors.New("there is no binding")
	})
}

// changeSchema gives an export another schema, which consumers take, and another claim.
func (e *env) changeSchema(t *testing.T, c client.Client, export exported, consumers map[string]string) {
	t.Helper()
	next := shardtesting.NewSchema("v2", export.GroupResource(), export.kind)
	if err := c.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	stored := &apisv1alpha2.APIExport{}
	shardtesting.Eventually(t, "the change of the export", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: export.name}, stored); err != nil {
			return err
		}
		stored.Spec.Resources[0].Schema = next.Name
		stored.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{claimOfConfigMaps, laterClaim}
		return c.Update(ctx, stored)
	})
	everywhere := e.everywhere(t)
	for shard, cluster := range consumers {
		shardtesting.Eventually(t, "the new schema on "+shard, func(ctx context.Context) error {
			binding := &apisv1alpha2.APIBinding{}
			if err := everywhere.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: export.name}, binding); err != nil {
				return err
			}
			if len(binding.Status.BoundResources) != 1 || binding.Status.BoundResources[0].Schema.Name != next.Name {
				return fmt.Errorf("bound resources %+v", binding.Status.BoundResources)
			}
			return isBound(binding)
		})
	}
}

// publishedResources are resources that shards publish of a provider.
var publishedResources = []schema.GroupVersionResource{
	apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"),
	{Group: apisv1alpha2.GroupName, Version: "v1alpha1", Resource: "apiresourceschemas"},
	tenancyv1alpha1.SchemeGroupVersion.WithResource("workspacetypes"),
}

// publishedBy returns a function that returns the shards that publish objects of a resource in a logical cluster.
func (e *env) publishedBy(t *testing.T, cluster string) func(context.Context, schema.GroupVersionResource) ([]string, error) {
	t.Helper()
	config := e.Masters(t, sharded.CacheServer)
	server, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.CloseIdleConnections)
	return func(ctx context.Context, gvr schema.GroupVersionResource) ([]string, error) {
		url := config.Host + cacheclient.Prefix + "/shards/*/clusters/" + cluster + "/apis/" + gvr.GroupVersion().String() + "/" + gvr.Resource
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, err
		}
		response, err := server.Do(req)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		list := &metav1.PartialObjectMetadataList{}
		if err := json.NewDecoder(response.Body).Decode(list); err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the cache server answers %s", response.Status)
		}
		var shards []string
		for i := range list.Items {
			shards = append(shards, list.Items[i].Annotations[cacheclient.ShardAnnotation])
		}
		slices.Sort(shards)
		return slices.Compact(shards), nil
	}
}

// waitPublished waits until objects of a resource are published by these shards only.
func (e *env) waitPublished(t *testing.T, published func(context.Context, schema.GroupVersionResource) ([]string, error), resource schema.GroupVersionResource, want ...string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s published by %v", resource.Resource, want), func(ctx context.Context) error {
		shards, err := published(ctx, resource)
		if err == nil && !slices.Equal(shards, want) {
			err = fmt.Errorf("published by %v", shards)
		}
		return err
	})
}

// watchStates reads all bindings of an export and what is published of it again and again, until stop is called, and reports when a
// binding is not Bound or nothing is published.
func (e *env) watchStates(t *testing.T, export exported, consumers map[string]string, published func(context.Context, schema.GroupVersionResource) ([]string, error)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := e.everywhere(t)
	var running sync.WaitGroup
	repeat := func(check func() error) {
		running.Go(func() {
			ticker := time.NewTicker(pollInterval)
			defer ticker.Stop()
			reported := false
			for {
				if err := check(); err != nil && ctx.Err() == nil && !reported {
					t.Error(err)
					reported = true
				}
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	for shard, cluster := range consumers {
		repeat(func() error {
			binding := &apisv1alpha2.APIBinding{}
			err := c.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: export.name}, binding)
			if err == nil {
				err = isBound(binding)
			}
			if err != nil {
				return fmt.Errorf("the binding on %s during the move: %w", shard, err)
			}
			return nil
		})
	}
	for _, resource := range publishedResources {
		repeat(func() error {
			shards, err := published(ctx, resource)
			if err == nil && len(shards) == 0 {
				err = errors.New("no shard publishes any")
			}
			if err != nil {
				return fmt.Errorf("%s during the move: %w", resource.Resource, err)
			}
			return nil
		})
	}
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}
