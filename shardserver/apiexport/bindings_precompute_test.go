package apiexport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	bindingcontroller "github.com/atoll-dev/atoll/shardserver/apiexport/binding"
	"github.com/atoll-dev/atoll/shardserver/apiexport/definitions"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestPrecompute compares the precomputed status of bindings with that of the controller for the same exports.
func TestPrecompute(t *testing.T) {
	s := shardtesting.Start(t)
	c := s.Client(t, s.Masters(t))
	provider, consumer := s.NewWorkspace(t, "root", "precomputed-provider").Spec.Cluster, s.NewWorkspace(t, "root", "precomputed").Spec.Cluster
	s.NewExport(t, provider, "widgets", schema.GroupResource{Group: "precomputed.io", Resource: "widgets"}, "Widget")
	s.NewExport(t, provider, "likewise", schema.GroupResource{Group: "precomputed.io", Resource: "likewises"}, "Widget")
	s.Bind(t, consumer, provider, "widgets") // creates the definition, which is established afterwards

	newBinding := func(path, export string) *apisv1alpha2.APIBinding {
		b := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", export, len(path))}}
		b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: path, Name: export}
		return b
	}
	precomputer := bindingcontroller.NewStatusPrecomputer(bindingcontroller.Config{
		Registry: s.Server.Registry, Exports: s.Server.Exports(),
		Definitions: definitions.New(definitions.Config{Registry: s.Server.Registry, Client: c, Exports: s.Server.Exports(), Bindings: s.Server.Bindings(), Clock: clock.RealClock{}}),
	})
	for name, tc := range map[string]struct {
		bindings []*apisv1alpha2.APIBinding
		reserved []string
	}{
		"a compiled-in API and one with a definition": {
			[]*apisv1alpha2.APIBinding{newBinding("root", "topology.kcp.io"), newBinding("root:precomputed-provider", "widgets")},
			[]string{"partitions.topology.kcp.io", "partitionsets.topology.kcp.io", "widgets.precomputed.io"},
		},
		"an export that does not exist":       {[]*apisv1alpha2.APIBinding{newBinding("root", "nothing"), newBinding("root", "topology.kcp.io")}, nil},
		"two bindings of the same resource":   {[]*apisv1alpha2.APIBinding{newBinding(provider, "widgets"), newBinding("root:precomputed-provider", "widgets")}, nil},
		"two bindings with conflicting names": {[]*apisv1alpha2.APIBinding{newBinding(provider, "widgets"), newBinding(provider, "likewise")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := precomputer.Precompute(t.Context(), logicalcluster.MustParseName("somewhere"), tc.bindings)
			if err != nil {
				t.Fatal(err)
			}
			var reservations map[string]map[string]string
			if text != "" {
				if err := json.Unmarshal([]byte(text), &reservations); err != nil {
					t.Fatal(err)
				}
			}
			if !sets.KeySet(reservations).Equal(sets.New(tc.reserved...)) {
				t.Errorf("reserved are %s", text)
			}
			for _, b := range tc.bindings {
				if bound := b.Status.Phase == apisv1alpha2.APIBindingPhaseBound; bound != (tc.reserved != nil) {
					t.Errorf("%s is %+v", b.Name, b.Status)
				}
			}
			if tc.reserved != nil {
				compareWithController(t, s, consumer, tc.bindings)
			}
		})
	}
}

// compareWithController checks that bindings to the same exports in a logical cluster get the same status.
func compareWithController(t *testing.T, s *shardtesting.Shard, consumer string, precomputed []*apisv1alpha2.APIBinding) {
	t.Helper()
	c := s.Client(t, s.Masters(t))
	for _, want := range precomputed {
		shardtesting.Eventually(t, "the precomputed status of "+want.Name, func(ctx context.Context) error {
			var list apisv1alpha2.APIBindingList
			if err := c.List(shardtesting.In(ctx, consumer), &list); err != nil {
				return err
			}
			for _, got := range list.Items {
				if got.Spec.Reference.Export.Name != want.Spec.Reference.Export.Name {
					continue
				}
				for i := range got.Status.Conditions {
					got.Status.Conditions[i].LastTransitionTime = metav1.Time{}
				}
				status := want.Status.DeepCopy()
				for i := range status.Conditions {
					status.Conditions[i].LastTransitionTime = metav1.Time{}
				}
				if !equality.Semantic.DeepEqual(&got.Status, status) {
					return fmt.Errorf("the precomputed status is %+v, the controller's %+v", status, got.Status)
				}
				return nil
			}
			return fmt.Errorf("no binding exists")
		})
	}
}
