package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/storage"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestPublisher tests that the published objects match the objects of the shard, whatever else is written to the cache.
func TestPublisher(t *testing.T) {
	cache := cachetesting.Start(t)
	kubeconfig := cache.Kubeconfig(t, cache.Shard(t, "root"))
	root := shardtesting.Start(t, func(o *options.Options) { o.Shard.CacheKubeconfig = kubeconfig })
	atRoot := root.Client(t, root.Masters(t))
	writer := cache.Client(t, "root")
	resource, _ := cacheclient.FindResource(tenancyv1alpha1.Resource("workspacetypes"))
	gvr := resource.GroupVersionResource
	key := func(name string) cacheclient.Key {
		return cacheclient.Key{Shard: "root", Cluster: logicalcluster.Root, Name: name}
	}
	published := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := writer.Get(ctx, gvr, key(name))
			return err
		}
	}
	gone := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, err := writer.Get(ctx, gvr, key(name)); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}
	}
	created := createType(t, atRoot, "kept")
	shardtesting.Eventually(t, "the published object", published("kept"))

	t.Run("published object has content and origin", func(t *testing.T) {
		object, err := writer.Get(t.Context(), gvr, key("kept"))
		must(t, err)
		annotations := object.Meta.Annotations
		if object.Meta.UID != created.UID || annotations["cache.kcp.io/original-resource-UID"] != string(created.UID) || annotations["kcp.io/shard"] != "root" ||
			annotations["kcp.io/cluster"] != "root" || annotations["cache.kcp.io/original-resource-version"] == "" || annotations["cache.kcp.io/reach"] != "global" || len(annotations) != len(created.Annotations)+4 {
			t.Errorf("got %s, original UID %s", object.Raw, created.UID)
		}
		shardtesting.Eventually(t, "the report of the shard", func(ctx context.Context) error {
			report, err := writer.Get(ctx, cacheclient.Reports, key("root"))
			if err == nil && report.Meta.Annotations["cache.kcp.io/reach"] != "global" {
				t.Errorf("caches of earlier versions do not copy %s", report.Raw)
			}
			return err
		})
	})
	t.Run("tenants cannot set annotations of caches or names of shards", func(t *testing.T) {
		patch := `{"metadata":{"labels":{"marked":"true"},"annotations":{"cache.kcp.io/down":"true","cache.kcp.io/via":"remote","kcp.io/shard":"other"}}}`
		must(t, atRoot.Patch(shardtesting.In(t.Context(), "root"), created.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
		shardtesting.Eventually(t, "the changed published object", func(ctx context.Context) error {
			object, err := writer.Get(ctx, gvr, key("kept"))
			if err != nil || object.Meta.Labels["marked"] == "" {
				return fmt.Errorf("it is not published: %w", err)
			}
			annotations := object.Meta.Annotations
			if _, down := annotations["cache.kcp.io/down"]; down || annotations["cache.kcp.io/via"] != "" || annotations["kcp.io/shard"] != "root" {
				t.Errorf("got %v", annotations)
			}
			return nil
		})
	})
	t.Run("change in the cache is reverted", func(t *testing.T) {
		shardtesting.Eventually(t, "the change in the cache", func(ctx context.Context) error {
			object, err := writer.Get(ctx, gvr, key("kept"))
			if err != nil {
				return err
			}
			changed, err := object.Unstructured()
			if err != nil {
				return err
			}
			changed.SetLabels(map[string]string{"forged": "true"})
			_, err = writer.Update(ctx, gvr, logicalcluster.Root, changed)
			return err
		})
		shardtesting.Eventually(t, "the reverted object", func(ctx context.Context) error {
			object, err := writer.Get(ctx, gvr, key("kept"))
			if err == nil && object.Meta.Labels["forged"] != "" {
				err = errors.New("it is still changed")
			}
			return err
		})
	})
	t.Run("integers of schemas are published exactly", func(t *testing.T) {
		const large = "9007199254740993" // one more than a float64 can hold
		schemas, _ := cacheclient.FindResource(apisv1alpha1.Resource("apiresourceschemas"))
		obj := shardtesting.NewSchema("v1", schema.GroupResource{Group: "example.com", Resource: "exact"}, "Exact")
		obj.Spec.Versions[0].Schema.Raw = []byte(`{"type":"object","properties":{"spec":{"type":"integer","format":"int64","default":` + large + `}}}`)
		must(t, atRoot.Create(shardtesting.In(t.Context(), "root"), obj))
		shardtesting.Eventually(t, "the schema", func(ctx context.Context) error {
			object, err := writer.Get(ctx, schemas.GroupVersionResource, key(obj.Name))
			if err == nil && !strings.Contains(string(object.Raw), `"default":`+large) {
				t.Errorf("got %s", object.Raw)
			}
			return err
		})
	})
	t.Run("status that no cache stores is refused", func(t *testing.T) {
		err := writeLongStatus(t, atRoot, root.NewWorkspace(t, "root", "long").Spec.Cluster)
		if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "published to other shards") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("unknown object is deleted and deleted object is recreated", func(t *testing.T) {
		_, err := writer.Create(t.Context(), gvr, logicalcluster.Root, &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}})
		must(t, err)
		shardtesting.Eventually(t, "the deletion of the unknown object", gone("unknown"))
		must(t, writer.Delete(t.Context(), gvr, key("kept"), ""))
		shardtesting.Eventually(t, "the recreated object", published("kept"))
	})
	t.Run("object with a finalizer stays published until it is deleted", func(t *testing.T) {
		held := createType(t, atRoot, "held", "example.com/hold")
		shardtesting.Eventually(t, "the published object", published("held"))
		must(t, atRoot.Delete(shardtesting.In(t.Context(), "root"), held))
		createType(t, atRoot, "later")
		shardtesting.Eventually(t, "a later object", published("later"))
		must(t, published("held")(t.Context()))
		must(t, atRoot.Patch(shardtesting.In(t.Context(), "root"), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		shardtesting.Eventually(t, "the deletion of the published object", gone("held"))
	})
	t.Run("RBAC is published from logical clusters with exports", func(t *testing.T) {
		quiet, sharing := root.NewWorkspace(t, "root", "quiet").Spec.Cluster, root.NewWorkspace(t, "root", "sharing").Spec.Cluster
		bindings, _ := cacheclient.FindResource(schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"})
		in := func(cluster string) func(context.Context) error { // the administrator's binding, which allows to bind all exports
			return func(ctx context.Context) error {
				_, err := writer.Get(ctx, bindings.GroupVersionResource, cacheclient.Key{Shard: "root", Cluster: logicalcluster.MustParseName(cluster), Name: "workspace-admin"})
				return err
			}
		}
		adminBinding := &rbacv1.ClusterRoleBinding{}
		shardtesting.Eventually(t, "the replicate annotation of the administrator's binding", func(ctx context.Context) error {
			err := atRoot.Get(shardtesting.In(ctx, sharing), client.ObjectKey{Name: "workspace-admin"}, adminBinding)
			if err == nil && adminBinding.Annotations[corev1alpha1.ReplicateAnnotationKey] == "" {
				err = errors.New("the annotation is missing")
			}
			return err
		})
		if err := in(sharing)(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("published without an export: %v", err)
		}
		kind := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
		must(t, atRoot.Create(shardtesting.In(t.Context(), sharing), kind))
		shardtesting.Eventually(t, "the administrator's binding", in(sharing))
		if err := in(quiet)(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("published in a logical cluster without an export: %v", err)
		}
		must(t, atRoot.Delete(shardtesting.In(t.Context(), sharing), kind))
		shardtesting.Eventually(t, "its deletion in the cache", func(ctx context.Context) error {
			if err := in(sharing)(ctx); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	})
	t.Run("objects of others in a logical cluster of this shard are ignored", func(t *testing.T) {
		here := root.NewWorkspace(t, "root", "here").Spec.Cluster
		otherShard := cache.Client(t, "beta")
		for _, cluster := range []string{here, "remote"} {
			obj := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "of-beta"}}
			_, err := otherShard.Create(t.Context(), gvr, logicalcluster.MustParseName(cluster), obj)
			must(t, err)
		}
		reader := storage.NewReader[*tenancyv1alpha1.WorkspaceType](root.Server.Registry, tenancyv1alpha1.Resource("workspacetypes")).Global()
		shardtesting.Eventually(t, "the object of beta", func(ctx context.Context) error {
			_, err := reader.Get(in(ctx, "remote"), "", "of-beta")
			return err
		})
		if _, err := reader.Get(in(t.Context(), here), "", "of-beta"); !apierrors.IsNotFound(err) {
			t.Errorf("a get returned %v", err)
		}
		if found, err := reader.List(in(t.Context(), here), "", nil); err != nil || len(found) != 0 {
			t.Errorf("a list returned %v, %v", found, err)
		}
		all, err := reader.List(logicalcluster.With(t.Context(), logicalcluster.Wildcard), "", nil)
		must(t, err)
		listed := clustersOf(all, "of-beta")
		stream, err := reader.WatchAll(t.Context())
		must(t, err)
		defer stream.Stop()
		var seen []*tenancyv1alpha1.WorkspaceType
		for event := range stream.ResultChan() {
			if event.Type == watch.Bookmark {
				break
			}
			seen = append(seen, event.Object.(*tenancyv1alpha1.WorkspaceType))
		}
		if watched := clustersOf(seen, "of-beta"); !slices.Equal(listed, []string{"remote"}) || !slices.Equal(watched, listed) {
			t.Errorf("listed in %v, watched in %v", listed, watched)
		}
		if len(seen) != len(all) {
			t.Errorf("watched %d, listed %d", len(seen), len(all))
		}
	})
	t.Run("system logical clusters and unlabelled ones are not published", func(t *testing.T) {
		resource, _ := cacheclient.FindResource(corev1alpha1.Resource("logicalclusters"))
		root.NewWorkspace(t, "root", "plain")
		objects, _, err := writer.List(t.Context(), resource.GroupVersionResource)
		must(t, err)
		for _, object := range objects {
			if object.Cluster.IsSystem() || object.Meta.Annotations[corev1alpha1.ReplicateAnnotationKey] == "" {
				t.Errorf("%s is in the cache", object.Key)
			}
		}
	})
}

// clustersOf returns the logical clusters that have a type of that name.
func clustersOf(all []*tenancyv1alpha1.WorkspaceType, name string) []string {
	var clusters []string
	for _, obj := range all {
		if obj.Name == name {
			clusters = append(clusters, logicalcluster.Of(obj).String())
		}
	}
	return clusters
}

func createType(t *testing.T, c client.Client, name string, finalizers ...string) *tenancyv1alpha1.WorkspaceType {
	t.Helper()
	obj := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
	must(t, c.Create(shardtesting.In(t.Context(), "root"), obj))
	return obj
}

func in(ctx context.Context, cluster string) context.Context {
	return logicalcluster.With(ctx, logicalcluster.MustParseName(cluster))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
