package syncagent

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/cleanup"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/installation"
)

// slice creates another slice of the export, restricted to a partition, and returns its name.
func (e *env) slice(t *testing.T, partition string) string {
	t.Helper()
	slice := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: e.Name + "-" + partition}}
	slice.Spec.APIExport.Name, slice.Spec.Partition = e.Name, partition
	create(t, newClient(t, e.Provider), slice)
	return slice.Name
}

func deleteOrphans(o *options.Options) { o.OrphanPolicy = string(options.DeleteOrphans) }

// Two PublishedResources may have copies of one kind. Copies of one are not orphans of the other.
func TestOrphansAreOfTheirPublishedResource(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "plain", Of(kind))
	spec, other := Of(kind), schema.GroupVersionKind{Group: "other." + e.Group, Version: kind.Version, Kind: kind.Kind}
	spec.Projection = &syncagentv1alpha1.ResourceProjection{Group: other.Group}
	spec.Naming = naming("{{ .ClusterName }}", "other-{{ .Object.metadata.name }}")
	e.Publish(t, "other", spec)
	agent := e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	orphans, kept := map[schema.GroupVersionKind]*unstructured.Unstructured{}, map[schema.GroupVersionKind]*unstructured.Unstructured{}
	for n, gvk := range []schema.GroupVersionKind{kind, other} {
		orphans[gvk], kept[gvk] = newObject(gvk, "default", fmt.Sprintf("orphan-%d", n), map[string]any{}), newObject(gvk, "default", fmt.Sprintf("kept-%d", n), map[string]any{})
		for _, object := range []*unstructured.Unstructured{orphans[gvk], kept[gvk]} {
			c.New(t, object)
			e.Copy(t, kind, c, object)
		}
	}
	agent.Stop(t)
	for _, orphan := range orphans {
		loseSource(t, c, orphan)
	}
	uids := map[schema.GroupVersionKind]string{}
	for gvk, object := range kept {
		uids[gvk] = string(e.Copy(t, kind, c, object).GetUID())
	}
	e.Agent(t, deleteOrphans)
	for _, orphan := range orphans { // both synchronizations have checked for orphans
		expectNoCopy(t, e, kind, c, orphan)
	}
	for gvk, object := range kept {
		if copied := e.Copy(t, kind, c, object); string(copied.GetUID()) != uids[gvk] || copied.GetDeletionTimestamp() != nil {
			t.Errorf("the copy of %s was deleted", object.GetName())
		}
	}
}

// An agent stores the endpoints of previous processes: a slice that lists fewer endpoints does not prove that objects are deleted.
func TestOrphansNeedAllEndpoints(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	agent := e.Agent(t)
	alpha, beta := e.Consumer(t, installation.Alpha), e.Consumer(t, installation.Beta)
	living, orphan := newObject(kind, "default", "living", map[string]any{}), newObject(kind, "default", "orphan", map[string]any{})
	alpha.New(t, living)
	beta.New(t, orphan)
	copied := e.Copy(t, kind, alpha, living)
	e.Copy(t, kind, beta, orphan)
	agent.Stop(t)
	loseSource(t, beta, orphan)
	create(t, newClient(t, e.Provider), &topologyv1alpha1.Partition{
		ObjectMeta: metav1.ObjectMeta{Name: "beta"}, Spec: topologyv1alpha1.PartitionSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": installation.Beta}}},
	})
	slice := e.slice(t, "beta")
	e.Agent(t, deleteOrphans, func(o *options.Options) { o.EndpointSlice = slice })
	expectNoCopy(t, e, kind, beta, orphan)
	if current := e.Copy(t, kind, alpha, living); current.GetUID() != copied.GetUID() || current.GetDeletionTimestamp() != nil {
		t.Error("the copy of an object that the slice does not reach was deleted")
	}
}

// An invalid slice makes no copy an orphan, and the command does not clean up because of it.
func TestInvalidSliceIsNoEvidence(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	published := e.Publish(t, "widgets", Of(kind))
	agent := e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	agent.Stop(t)
	slice := e.slice(t, "missing")
	invalid := func(o *options.Options) { o.EndpointSlice = slice }
	e.Agent(t, deleteOrphans, invalid)
	shardtesting.Eventually(t, "the condition says why", func(context.Context) error {
		condition := e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionFalse)
		if !strings.Contains(condition.Message, "PartitionValid") {
			return fmt.Errorf("it says %q", condition.Message)
		}
		return nil
	})
	o := e.Options(t)
	invalid(o)
	config, err := o.Clusters.Complete()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := cleanup.Run(t.Context(), config, true, &out); err == nil || !strings.Contains(err.Error(), "PartitionValid") {
		t.Errorf("cleanup returns %v and prints %q", err, out.String())
	}
	if current := e.Copy(t, kind, c, object); current.GetUID() != copied.GetUID() || current.GetDeletionTimestamp() != nil {
		t.Error("the copy was deleted")
	}
}
