package sharding_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const inRoot, owned = "root", "system:shard"

// TestRegistration covers what becomes of the Shard that a shard owns, and of the one in root, in an installation of three shards. The Shard in
// root of beta exists before, as that of a shard of an earlier version.
func TestRegistration(t *testing.T) {
	root := shardtesting.Start(t)
	atRoot := root.Client(t, root.Masters(t))
	older := &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: "beta", Labels: map[string]string{"name": "beta", "old": "yes"}, Annotations: map[string]string{corev1alpha1.UnschedulableAnnotationKey: "moved"}},
		Spec:       corev1alpha1.ShardSpec{BaseURL: "https://old.example", ResourceLimits: &corev1alpha1.ShardResourceLimits{Hard: corev1.ResourceList{"workspaces": resource.MustParse("7")}}},
	}
	planned := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "planned"}, Spec: corev1alpha1.ShardSpec{BaseURL: "https://planned.example"}}
	must(t, atRoot.Create(shardtesting.In(t.Context(), inRoot), older))
	alpha := shardtesting.StartShard(t, root, "alpha", func(o *options.Options) { o.Shard.Labels = map[string]string{"region": "moon"} })
	beta := shardtesting.StartShard(t, root, "beta")
	root.WaitShards(t, "root", "alpha", "beta")
	atAlpha, atBeta := alpha.Client(t, alpha.Masters(t)), beta.Client(t, beta.Masters(t))

	t.Run("each shard owns its Shard, and root represents it", func(t *testing.T) {
		for name, at := range map[string]client.Client{"root": atRoot, "alpha": atAlpha, "beta": atBeta} {
			shardtesting.Eventually(t, "the Shards of "+name, func(context.Context) error {
				own, inRoot := get(t, at, owned, name), get(t, atRoot, inRoot, name)
				if own == nil || inRoot == nil || own.Spec.BaseURL != inRoot.Spec.BaseURL || fmt.Sprint(own.Labels) != fmt.Sprint(inRoot.Labels) ||
					inRoot.Annotations[corev1alpha1.ShardRepresentationAnnotationKey] == "" || own.Annotations[corev1alpha1.ShardRepresentationAnnotationKey] != "" {
					return fmt.Errorf("it owns %+v; in root is %+v", own, inRoot)
				}
				if !conditionsv1alpha1.IsTrue(own, conditionsv1alpha1.Ready) || len(own.Status.Load) == 0 || len(inRoot.Status.Load) == 0 {
					return fmt.Errorf("the status is %+v; that in root is %+v", own.Status, inRoot.Status)
				}
				return nil
			})
		}
		if shard := get(t, atRoot, inRoot, "alpha"); shard.Labels["region"] != "moon" {
			t.Errorf("got labels %v", shard.Labels)
		}
	})

	t.Run("a Shard of an earlier version is taken over with what is decided about it", func(t *testing.T) {
		shardtesting.Eventually(t, "its Shard", func(context.Context) error {
			own := get(t, atBeta, owned, "beta")
			if own == nil || own.Annotations[corev1alpha1.UnschedulableAnnotationKey] != "moved" || own.Spec.ResourceLimits == nil {
				return fmt.Errorf("it owns %+v", own)
			}
			return nil
		})
		if shard := get(t, atRoot, inRoot, "beta"); shard.Labels["old"] != "" || shard.Spec.BaseURL != beta.Masters(t).Host || shard.Spec.ResourceLimits == nil {
			t.Errorf("got %+v", shard)
		}
	})

	t.Run("what is decided in root is applied, and removed", func(t *testing.T) {
		for _, decision := range []string{`"true"`, `null`} {
			limits := map[string]string{`"true"`: `{"hard":{"workspaces":50}}`, `null`: `null`}[decision]
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}},"spec":{"resourceLimits":%s}}`, corev1alpha1.UnschedulableAnnotationKey, decision, limits)
			shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}
			must(t, atRoot.Patch(shardtesting.In(t.Context(), inRoot), shard, client.RawPatch(types.MergePatchType, []byte(patch))))
			shardtesting.Eventually(t, "the Shard with "+decision, func(context.Context) error {
				own := get(t, atAlpha, owned, "alpha")
				_, cordoned := own.Annotations[corev1alpha1.UnschedulableAnnotationKey]
				if set := decision != `null`; cordoned != set || (own.Spec.ResourceLimits != nil) != set {
					return fmt.Errorf("it owns %+v", own)
				}
				return nil
			})
		}
	})

	t.Run("what else is changed in root is overwritten", func(t *testing.T) {
		shard := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}
		patch := `{"metadata":{"labels":{"region":"mars","extra":"yes"}},"spec":{"baseURL":"https://elsewhere.example"}}`
		must(t, atRoot.Patch(shardtesting.In(t.Context(), inRoot), shard, client.RawPatch(types.MergePatchType, []byte(patch))))
		for name, shard := range map[string]*shardtesting.Shard{"root": root, "beta": beta} { // also before it is overwritten
			found, err := endpoints.NewShardLister(shard.Server.Registry).Get(t.Context(), "alpha")
			if err != nil || found.Spec.BaseURL != alpha.Masters(t).Host || found.Labels["region"] != "moon" || found.Labels["extra"] != "" {
				t.Errorf("readers of %s get %+v, %v", name, found, err)
			}
		}
		shardtesting.Eventually(t, "the representation", func(context.Context) error {
			if shard := get(t, atRoot, inRoot, "alpha"); shard.Labels["region"] != "moon" || shard.Labels["extra"] != "" || shard.Spec.BaseURL != alpha.Masters(t).Host {
				return fmt.Errorf("it is %+v", shard)
			}
			return nil
		})
	})

	t.Run("a shard that deletes its Shard is removed, and stays so", func(t *testing.T) {
		shardtesting.Eventually(t, "the deletion", func(ctx context.Context) error { // once the policies of root are replicated
			return atAlpha.Delete(shardtesting.In(ctx, owned), &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}})
		})
		gone(t, atRoot, "alpha")
	})

	must(t, atRoot.Create(shardtesting.In(t.Context(), inRoot), planned))
	t.Run("a shard that is down is removed with its Shard in the cache", func(t *testing.T) {
		must(t, beta.Stop())
		cache, err := cacheclient.New(root.Masters(t), "beta")
		must(t, err)
		defer cache.CloseIdleConnections()
		key := cacheclient.Key{Shard: "beta", Cluster: logicalcluster.Shard, Name: "beta"}
		object, err := cache.Get(t.Context(), cacheclient.Shards, key)
		must(t, err)
		must(t, cache.Delete(t.Context(), cacheclient.Shards, key, object.Meta.UID))
		gone(t, atRoot, "beta")
	})

	t.Run("a Shard that no shard owns is left alone", func(t *testing.T) {
		if shard := get(t, atRoot, inRoot, "planned"); shard == nil || len(shard.Annotations[corev1alpha1.ShardRepresentationAnnotationKey]) > 0 {
			t.Errorf("it is %+v", shard)
		}
	})
}

// get returns a Shard, or nil if there is none.
func get(t *testing.T, c client.Client, cluster, name string) *corev1alpha1.Shard {
	t.Helper()
	shard := &corev1alpha1.Shard{}
	err := c.Get(shardtesting.In(t.Context(), cluster), client.ObjectKey{Name: name}, shard)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return shard
}

func gone(t *testing.T, atRoot client.Client, name string) {
	t.Helper()
	shardtesting.Eventually(t, "no Shard "+name+" in root", func(context.Context) error {
		if shard := get(t, atRoot, inRoot, name); shard != nil {
			return fmt.Errorf("it is %+v", shard)
		}
		return nil
	})
}
