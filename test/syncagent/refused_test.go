package syncagent

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/test/installation"
)

// The agent stops the sync of a PublishedResource that becomes invalid. It does not start one that publishes a resource of another
// PublishedResource until the other is deleted.
func TestInvalidAndDuplicatePublishedResourcesAreNotSynced(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	first := e.Publish(t, "first", Of(kind))
	e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	before := newObject(kind, "default", "before", map[string]any{"v": "1"})
	c.New(t, before)
	copied := e.Copy(t, kind, c, before)

	second := e.Publish(t, "second", Of(kind))
	e.expectReason(t, second, syncagentv1alpha1.ConditionSyncing, "ResourceAlreadyPublished", first.Name)

	patch(t, e.Service, first, `{"spec":{"naming":{"name":"{{ .Object."}}}`)
	e.expectReason(t, first, syncagentv1alpha1.ConditionSyncing, "InvalidSpec", "spec.naming.name")
	patch(t, c, before, `{"spec":{"v":"2"}}`)
	gadget := e.Define(t, "Gadget")
	e.Publish(t, "gadgets", Of(gadget))
	marker := newObject(gadget, "default", "marker", map[string]any{})
	c.New(t, marker)
	e.Copy(t, gadget, c, marker)
	expectSpec(t, e.Service, copied, map[string]any{"v": "1"})
	e.expectReason(t, second, syncagentv1alpha1.ConditionSyncing, "ResourceAlreadyPublished", first.Name)

	if err := e.Service.Delete(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	e.expectCondition(t, second, syncagentv1alpha1.ConditionSyncing, metav1.ConditionTrue)
	expectSpec(t, e.Service, copied, map[string]any{"v": "2"})
}
