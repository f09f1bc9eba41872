package shardserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestRootIdentities: the exports of root have the identities that their seeds determine, publish them to users with
// permission, and keep them.
func TestRootIdentities(t *testing.T) {
	const seed = "a value that another installation has as well"
	seeds := filepath.Join(t.TempDir(), "identities.yaml")
	if err := os.WriteFile(seeds, []byte("identities:\n- export: tenancy.kcp.io\n  identity: "+seed+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shard := shardtesting.StartIn(t, t.TempDir(), func(o *options.Options) { o.Shard.RootIdentitiesFile = seeds })
	c := shard.Client(t, shard.Masters(t))
	before := rootIdentities(t, c)

	t.Run("a seed determines the identity", func(t *testing.T) {
		if sum := sha256.Sum256([]byte(seed)); before["tenancy.kcp.io"] != hex.EncodeToString(sum[:]) {
			t.Errorf("got %s", before["tenancy.kcp.io"])
		}
	})
	t.Run("other identities are generated, in the secrets of the exports", func(t *testing.T) {
		secret := &corev1.Secret{}
		if err := c.Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Namespace: "kcp-system", Name: "migration.kcp.io"}, secret); err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(secret.Data["key"]); len(secret.Data["key"]) != 43 || before["migration.kcp.io"] != hex.EncodeToString(sum[:]) {
			t.Errorf("the secret has %d bytes, the identity is %s", len(secret.Data["key"]), before["migration.kcp.io"])
		}
	})
	t.Run("root and system:shard bind the exports", func(t *testing.T) {
		for cluster, count := range map[string]int{"root": 4, "system:shard": 5} {
			waitForBindings(t, c, cluster, count, before)
		}
	})
	t.Run("the shard stores the identities, and restores changed ones", func(t *testing.T) {
		waitForIdentityCache(t, c, before)
		in := shardtesting.In(t.Context(), "system:shard")
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "apiexport-identity-cache"}}
		if err := c.Delete(in, configMap); err != nil {
			t.Fatal(err)
		}
		waitForIdentityCache(t, c, before)
		if err := c.Patch(in, configMap, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"tenancy.kcp.io":"other","own":"x"}}`))); err != nil {
			t.Fatal(err)
		}
		waitForIdentityCache(t, c, before)
	})
	workspace := shard.NewWorkspace(t, "root", "kept").Spec.Cluster

	t.Run("a restart without seeds keeps all identities", func(t *testing.T) {
		if err := shard.Stop(); err != nil {
			t.Fatal(err)
		}
		again := shardtesting.StartIn(t, shard.Directory)
		c := again.Client(t, again.Masters(t))
		if after := rootIdentities(t, c); !maps.Equal(after, before) {
			t.Errorf("before %v, after %v", before, after)
		}
		waitForBindings(t, c, "root", 4, before)
		waitForBindings(t, c, workspace, 2, before)
		waitForIdentityCache(t, c, before)
		again.NewWorkspace(t, workspace, "child")
	})
}

// rootIdentities returns the identities of the five exports of root.
func rootIdentities(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	found := map[string]string{}
	shardtesting.Eventually(t, "identities of root's exports", func(ctx context.Context) error {
		var list apisv1alpha2.APIExportList
		if err := c.List(shardtesting.In(ctx, "root"), &list); err != nil {
			return err
		}
		if len(list.Items) != 5 {
			return fmt.Errorf("got %d exports", len(list.Items))
		}
		for _, export := range list.Items {
			if export.Status.IdentityHash == "" {
				return fmt.Errorf("%s has none", export.Name)
			}
			found[export.Name] = export.Status.IdentityHash
		}
		return nil
	})
	return found
}

// waitForBindings waits until all bindings of a logical cluster are Bound, and checks the identities in them.
func waitForBindings(t *testing.T, c client.Client, cluster string, count int, identities map[string]string) {
	t.Helper()
	shardtesting.Eventually(t, "bindings of "+cluster, func(ctx context.Context) error {
		var list apisv1alpha2.APIBindingList
		if err := c.List(shardtesting.In(ctx, cluster), &list); err != nil {
			return err
		}
		if len(list.Items) != count {
			return fmt.Errorf("got %d bindings", len(list.Items))
		}
		for _, binding := range list.Items {
			if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound || binding.Status.APIExportClusterName != "root" {
				return fmt.Errorf("%s: %+v", binding.Name, binding.Status)
			}
			for _, bound := range binding.Status.BoundResources {
				if bound.Schema.IdentityHash != identities[binding.Spec.Reference.Export.Name] {
					t.Errorf("%s: %s has the identity %s", cluster, bound.Resource, bound.Schema.IdentityHash)
				}
			}
		}
		return nil
	})
}

func waitForIdentityCache(t *testing.T, c client.Client, identities map[string]string) {
	t.Helper()
	shardtesting.Eventually(t, "the cache of identities", func(ctx context.Context) error {
		configMap := &corev1.ConfigMap{}
		if err := c.Get(shardtesting.In(ctx, "system:shard"), client.ObjectKey{Namespace: "default", Name: "apiexport-identity-cache"}, configMap); err != nil {
			return err
		}
		if !maps.Equal(configMap.Data, identities) {
			return fmt.Errorf("it is %v", configMap.Data)
		}
		return nil
	})
}
