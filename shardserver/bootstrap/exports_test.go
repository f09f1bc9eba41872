package bootstrap_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestRootExports runs its subtests in order: the later ones modify the content.
func TestRootExports(t *testing.T) {
	s := shardtesting.Start(t)
	c := s.Client(t, s.Masters(t))
	for _, part := range []struct {
		name string
		run  func(*testing.T, client.Client)
	}{
		{"root has the exports of the contract", testExports},
		{"root and the shard itself are bound", testBindings},
		{"a second run writes nothing", testSecondRunKeepsExports},
		{"an export of an older version gets today's schemas", testExportUpgrade},
		{"a different schema is replaced", testSchemaReplacement},
		{"descriptions alone are no reason to replace schemas", testDescriptionChange},
		{"claims and identity of an export are left alone", testClaimsAreKept},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c) })
	}
}

func testExports(t *testing.T, c client.Client) {
	for name, schemas := range map[string]string{
		"tenancy.kcp.io":     "v260522-2bf05df66.workspaces.tenancy.kcp.io v260519-96f2749.workspacetypes.tenancy.kcp.io v250827-717cfea84.workspaceauthenticationconfigurations.tenancy.kcp.io",
		"topology.kcp.io":    "v240903-d6797056a.partitions.topology.kcp.io v240903-d6797056a.partitionsets.topology.kcp.io",
		"shards.core.kcp.io": "v260302-ae9fdd9c1.shards.core.kcp.io",
		"cache.kcp.io":       "v250920-de0c8484d.clustercachedresources.cache.kcp.io v260804-b35f3bb61.clustercachedresourceendpointslices.cache.kcp.io",
		"migration.kcp.io":   "v260702-7381341f5.logicalclustermigrations.migration.kcp.io v260702-7381341f5.logicalclusterdumps.migration.kcp.io",
	} {
		export := export(t, c, name)
		var got []string
		for _, resource := range export.Spec.Resources {
			got = append(got, resource.Schema)
			if !strings.HasSuffix(resource.Schema, "."+resource.Name+"."+resource.Group) || resource.Storage.CRD == nil {
				t.Errorf("%s: resource %+v", name, resource)
			}
			schema := &apisv1alpha1.APIResourceSchema{}
			schema.Name = resource.Schema
			if get(t, c, "root", schema); schema.Spec.Names.Plural != resource.Name || schema.Spec.Group != resource.Group || len(schema.Spec.Versions) != 1 {
				t.Errorf("%s: schema %+v", name, schema.Spec)
			}
		}
		if !slices.Equal(got, strings.Fields(schemas)) {
			t.Errorf("%s offers %v", name, got)
		}
		if bounded := export.Spec.MaximalPermissionPolicy != nil; bounded != (name == "tenancy.kcp.io") {
			t.Errorf("%s has the policy %v", name, export.Spec.MaximalPermissionPolicy)
		}
		if ref := export.Spec.Identity.SecretRef; ref.Namespace != "kcp-system" || ref.Name != name {
			t.Errorf("%s has its identity in %v", name, ref)
		}
	}
}

func testBindings(t *testing.T, c client.Client) {
	for cluster, want := range map[string][]string{
		"root":         {"migration.kcp.io", "shards.core.kcp.io", "tenancy.kcp.io", "topology.kcp.io"},
		"system:shard": {"cache.kcp.io", "migration.kcp.io", "shards.core.kcp.io", "tenancy.kcp.io", "topology.kcp.io"},
	} {
		var list apisv1alpha2.APIBindingList
		must(t, c.List(shardtesting.In(t.Context(), cluster), &list))
		var got []string
		for _, binding := range list.Items {
			got = append(got, binding.Name)
			if ref := binding.Spec.Reference.Export; ref == nil || ref.Path != "root" || ref.Name != binding.Name {
				t.Errorf("%s: %s binds %v", cluster, binding.Name, ref)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s binds %v", cluster, got)
		}
	}
}

// generations returns the generations of all objects of root's exports. Unlike resource versions, they do not change
// with the status, which controllers write.
func generations(t *testing.T, c client.Client) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for _, cluster := range []string{"root", "system:shard"} {
		ctx := shardtesting.In(t.Context(), cluster)
		var schemas apisv1alpha1.APIResourceSchemaList
		var exports apisv1alpha2.APIExportList
		var bindings apisv1alpha2.APIBindingList
		must(t, c.List(ctx, &schemas))
		must(t, c.List(ctx, &exports))
		must(t, c.List(ctx, &bindings))
		for _, obj := range schemas.Items {
			found[cluster+"/"+string(obj.UID)] = obj.Generation
		}
		for _, obj := range exports.Items {
			found[cluster+"/"+string(obj.UID)] = obj.Generation
		}
		for _, obj := range bindings.Items {
			found[cluster+"/"+string(obj.UID)] = obj.Generation
		}
	}
	return found
}

func testSecondRunKeepsExports(t *testing.T, c client.Client) {
	before := generations(t, c)
	if len(before) != 10+5+4+5 {
		t.Errorf("%d objects", len(before))
	}
	must(t, bootstrap.Run(t.Context(), c, options()))
	after := generations(t, c)
	for uid, generation := range before {
		if after[uid] != generation {
			t.Errorf("%s was written", uid)
		}
	}
}

func testExportUpgrade(t *testing.T, c client.Client) {
	old := schema(t, c, "v240903-d6797056a.partitions.topology.kcp.io")
	old.ObjectMeta = metav1.ObjectMeta{Name: "v1.partitions.topology.kcp.io"}
	must(t, c.Create(shardtesting.In(t.Context(), "root"), old))
	topology := export(t, c, "topology.kcp.io")
	updateWithRetry(t, c, shardtesting.In(t.Context(), "root"), topology, func() { topology.Spec.Resources[0].Schema = old.Name })
	must(t, bootstrap.Run(t.Context(), c, options()))
	if got := export(t, c, "topology.kcp.io").Spec.Resources[0].Schema; got != "v240903-d6797056a.partitions.topology.kcp.io" {
		t.Errorf("it offers %s", got)
	}
	schema(t, c, old.Name) // bindings may refer to it until they are updated
	must(t, c.Delete(shardtesting.In(t.Context(), "root"), old))
}

func testSchemaReplacement(t *testing.T, c client.Client) {
	replaced := swapSchema(t, c, func(text string) string { return strings.Replace(text, `"minLength":1`, `"minLength":2`, 1) })
	must(t, bootstrap.Run(t.Context(), c, options()))
	if now := schema(t, c, replaced.Name); now.UID == replaced.UID {
		t.Error("it is the old one")
	}
}

func testDescriptionChange(t *testing.T, c client.Client) {
	other := swapSchema(t, c, func(text string) string { return strings.Replace(text, `"description":"`, `"description":"Well: `, 1) })
	must(t, bootstrap.Run(t.Context(), c, options()))
	if now := schema(t, c, other.Name); now.UID != other.UID {
		t.Error("it was replaced")
	}
}

// swapSchema replaces a schema of root.
func swapSchema(t *testing.T, c client.Client, edit func(string) string) *apisv1alpha1.APIResourceSchema {
	t.Helper()
	root := shardtesting.In(t.Context(), "root")
	schema := schema(t, c, "v260702-7381341f5.logicalclustermigrations.migration.kcp.io")
	must(t, c.Delete(root, schema))
	before := string(schema.Spec.Versions[0].Schema.Raw)
	after := edit(before)
	if after == before {
		t.Fatal("nothing was edited")
	}
	schema.Spec.Versions[0].Schema.Raw = []byte(after)
	schema.ObjectMeta = metav1.ObjectMeta{Name: schema.Name}
	must(t, c.Create(root, schema))
	return schema
}

func testClaimsAreKept(t *testing.T, c client.Client) {
	root := shardtesting.In(t.Context(), "root")
	migration := export(t, c, "migration.kcp.io")
	updateWithRetry(t, c, root, migration, func() {
		migration.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"}}}
		migration.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
		migration.Spec.Identity.SecretRef.Name = "other"
	})
	must(t, bootstrap.Run(t.Context(), c, options()))
	now := export(t, c, "migration.kcp.io")
	if len(now.Spec.PermissionClaims) != 1 || now.Spec.Identity.SecretRef.Name != "other" || now.Spec.MaximalPermissionPolicy != nil {
		t.Errorf("it became %+v", now.Spec)
	}
}

func export(t *testing.T, c client.Client, name string) *apisv1alpha2.APIExport {
	t.Helper()
	export := &apisv1alpha2.APIExport{}
	export.Name = name
	return get(t, c, "root", export)
}

func schema(t *testing.T, c client.Client, name string) *apisv1alpha1.APIResourceSchema {
	t.Helper()
	schema := &apisv1alpha1.APIResourceSchema{}
	schema.Name = name
	return get(t, c, "root", schema)
}
