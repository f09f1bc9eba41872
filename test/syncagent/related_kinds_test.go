package syncagent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

func TestR7TypeOfTheSameExport(t *testing.T) {
	t.Parallel()
	var things schema.GroupVersionKind
	e, c, object, copied := newRelated(t, installation.Beta, map[string]any{}, func(e *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		things = e.Define(t, "Thing")
		published := Of(things)
		published.Synchronization = &syncagentv1alpha1.SynchronizationSpec{Enabled: false}
		e.Publish(t, "things", published)
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedThing(things, up, "upward"), relatedThing(things, down, "downward")}
	})
	create(t, e.Service, newObject(things, copied.GetNamespace(), "upward", map[string]any{"a": "b"}))
	c.New(t, newObject(things, "default", "downward", map[string]any{"c": "d"}))
	expectSpec(t, c, newObject(things, "default", "upward", nil), map[string]any{"a": "b"})
	expectSpec(t, e.Service, newObject(things, copied.GetNamespace(), "downward", nil), map[string]any{"c": "d"})
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
	expectGone(t, e.Service, newObject(things, copied.GetNamespace(), "downward", nil))
}

func TestR7TypeOfAnotherExport(t *testing.T) {
	t.Parallel()
	foreign := newEnv(t)
	things := foreign.Define(t, "Thing")
	published := Of(things)
	published.Synchronization = &syncagentv1alpha1.SynchronizationSpec{Enabled: false}
	foreign.Publish(t, "things", published)
	foreign.Agent(t)
	identity := foreign.identity(t)

	e := newEnv(t)
	kind := e.Define(t, "Widget")
	spec := Of(kind)
	for name, origin := range map[string]syncagentv1alpha1.RelatedResourceOrigin{"upward": up, "downward": down} {
		related := relatedThing(things, origin, name)
		related.IdentityHash = identity
		spec.Related = append(spec.Related, related)
	}
	e.Publish(t, "widgets", spec)
	e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	binding := &apisv1alpha1.APIBinding{}
	binding.Name = "foreign"
	binding.Spec.Reference.Export = &apisv1alpha1.ExportBindingReference{Path: foreign.ProviderPath, Name: foreign.Name}
	create(t, c, binding)
	c.accept(t, apisv1alpha1.PermissionClaim{
		GroupResource: apisv1alpha1.GroupResource{Group: things.Group, Resource: "things"}, IdentityHash: identity, All: true,
	})
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	create(t, e.Service, newObject(things, copied.GetNamespace(), "upward", map[string]any{"a": "b"}))
	c.New(t, newObject(things, "default", "downward", map[string]any{"c": "d"}))
	expectSpec(t, c, newObject(things, "default", "upward", nil), map[string]any{"a": "b"})
	expectSpec(t, e.Service, newObject(things, copied.GetNamespace(), "downward", nil), map[string]any{"c": "d"})
}

// identity waits until the export has an identity, and returns it.
func (e *env) identity(t *testing.T) (hash string) {
	t.Helper()
	provider := newClient(t, e.Provider)
	shardtesting.Eventually(t, "the export has an identity", func(ctx context.Context) error {
		export := &apisv1alpha1.APIExport{}
		if err := provider.Get(ctx, types.NamespacedName{Name: e.Name}, export); err != nil {
			return err
		}
		if hash = export.Status.IdentityHash; hash == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	return hash
}

// accept adds a claim to those that the consumer accepts.
func (c *consumer) accept(t *testing.T, claim apisv1alpha1.PermissionClaim) {
	t.Helper()
	shardtesting.Eventually(t, "accepting the claim", func(ctx context.Context) error {
		binding := &apisv1alpha1.APIBinding{}
		if err := c.Get(ctx, client.ObjectKey{Name: "service"}, binding); err != nil {
			return err
		}
		binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha1.AcceptablePermissionClaim{
			PermissionClaim: claim, State: apisv1alpha1.ClaimAccepted,
		})
		return c.Update(ctx, binding)
	})
}

// A related resource that the service cluster does not serve delays neither the primary objects nor other entries, and the agent syncs it
// when it is served.
func TestRelatedResourceIsNotServed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	spec := Of(kind)
	missing := relatedThing(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, down, "missing")
	missing.Group, missing.Version, missing.Resource = "", "v1", "configmaps"
	missing.Projection = &syncagentv1alpha1.RelatedResourceProjection{Group: e.Group, Resource: "things"}
	spec.Related = []syncagentv1alpha1.RelatedResourceSpec{missing, relatedSecret("creds", down, reference("spec.secret"))}
	published := e.Publish(t, "widgets", spec)
	e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{"secret": "creds"})
	c.New(t, object)
	c.New(t, newSecret("default", "creds", "one"))
	copied := e.Copy(t, kind, c, object)
	expectSecret(t, e.Service, copied.GetNamespace(), "creds", one)
	if condition := e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionTrue); !strings.Contains(condition.Message, "missing") {
		t.Errorf("the condition says %q", condition.Message)
	}
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
}
