package admission

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

var errCalled = errors.New("called")

// rejectingPlugin refuses every request.
type rejectingPlugin struct{ *admission.Handler }

func (rejectingPlugin) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errCalled
}

func (rejectingPlugin) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errCalled
}

func TestCustomResourcesAreExempt(t *testing.T) {
	plugin := forCompiledInKinds(func(rules.Config) admission.Interface {
		return rejectingPlugin{admission.NewHandler(admission.Create, admission.Delete)}
	})(rules.Config{})
	ours, custom := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, &unstructured.Unstructured{}
	for name, tc := range map[string]struct {
		obj, old runtime.Object
		asked    bool
	}{
		"compiled-in object":               {ours, nil, true},
		"deletion of a compiled-in object": {nil, ours, true},
		"deletion without an object":       {nil, nil, true},
		"custom resource":                  {custom, nil, false},
		"deletion of a custom resource":    {nil, custom, false},
		"update of a custom resource":      {custom, custom, false},
		"update of a compiled-in object":   {ours, ours, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := admission.NewAttributesRecord(tc.obj, tc.old, corev1alpha1.SchemeGroupVersion.WithKind("Shard"), "", "x", corev1alpha1.SchemeGroupVersion.WithResource("shards"), "", admission.Create, nil, false, nil)
			if err := plugin.(admission.MutationInterface).Admit(t.Context(), a, nil); errors.Is(err, errCalled) != tc.asked {
				t.Errorf("Admit: %v", err)
			}
			if err := plugin.(admission.ValidationInterface).Validate(t.Context(), a, nil); errors.Is(err, errCalled) != tc.asked {
				t.Errorf("Validate: %v", err)
			}
		})
	}
	if !plugin.Handles(admission.Delete) || plugin.Handles(admission.Update) {
		t.Error("it handles other operations than the plug-in")
	}
}
