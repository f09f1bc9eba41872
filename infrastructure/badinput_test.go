package infrastructure_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func withSchema(schema string) func(*infrastructurev1alpha1.Template) {
	return func(t *infrastructurev1alpha1.Template) { t.Spec.Schema.Raw = []byte(schema) }
}

func withNames(kind, resource string) func(*infrastructurev1alpha1.Template) {
	return func(t *infrastructurev1alpha1.Template) {
		t.Spec.InstanceCRD.Kind, t.Spec.InstanceCRD.Resource = kind, resource
	}
}

// testBadInput creates Templates with one invalid field each: each gets a condition that names the field, the provider creates no CRD and no export
// entry for it, and writes nothing else.
func (e *env) testBadInput(t *testing.T) {
	exported, definitions := e.exported(t), e.definitions(t)
	manyMistakes := `{"type":"object","properties":{` + strings.TrimSuffix(strings.Repeat(`"FIELD":{},`, 2000), ",") + `}}`
	for i := range 2000 {
		manyMistakes = strings.Replace(manyMistakes, "FIELD", fmt.Sprintf("field%d", i), 1)
	}
	for _, test := range []struct {
		name   string
		change func(*infrastructurev1alpha1.Template)
		field  string
	}{
		{"broken-schema", withSchema(`{"type":"object","properties":{"a":{"type":"nonsense"}}}`), "spec.schema.properties[a].type:"},
		{"unknown-keyword", withSchema(`{"type":"object","propertys":{}}`), "spec.schema"},
		{"not-structural", withSchema(`{"type":"object","properties":{"a":{"properties":{"b":{"type":"string"}}}}}`), "spec.schema.properties[a].type"},
		{"no-object", withSchema(`{"type":"array","items":{"type":"string"}}`), "spec.schema.type"},
		{"many-mistakes", withSchema(manyMistakes), "spec.schema.properties[field0].type"},
		{"reserved-field", withSchema(`{"type":"object","properties":{"metadata":{"type":"object"}}}`), "spec.schema.properties[metadata]"},
		{"broken-rule", withSchema(`{"type":"object","x-kubernetes-validations":[{"rule":"self."}]}`), "spec.schema.x-kubernetes-validations[0].rule"},
		{"costly-rule", withSchema(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self.matches('a+')"}]}}}}}`), "spec.schema.properties[a].items.items.x-kubernetes-validations[0].rule:"},
		{"broken-default", withSchema(`{"type":"object","properties":{"a":{"type":"string","default":1}}}`), "spec.schema.properties[a].default"},
		{"other-group", func(t *infrastructurev1alpha1.Template) { t.Spec.InstanceCRD.Group = "example.org" }, "spec.instanceCRD.group"},
		{"same-resource", withNames("Other", "redis"), "spec.instanceCRD.resource"},
		{"same-kind", withNames("Redis", "others"), "spec.instanceCRD.kind"},
		{"same-singular", withNames("REDIS", "others"), "spec.instanceCRD.kind"},
		{"same-list", withNames("RedisList", "others"), "spec.instanceCRD.kind"},
		{"own-kind", withNames("Catalogue", "others"), "spec.instanceCRD.kind"},
		{"long-resource", withNames("Long", strings.Repeat("a", 64)), "spec.instanceCRD.resource"},
		{"long-kind", withNames("L"+strings.Repeat("o", 61), "long"), "spec.instanceCRD.kind"},
		{strings.Repeat("a", 64), func(*infrastructurev1alpha1.Template) {}, "metadata.name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			template := newTemplate(test.name, "Bad", test.change)
			e.create(t, template)
			_, message := e.unready(t, test.name, infrastructurev1alpha1.ReasonInvalidSpec)
			if !strings.Contains(message, test.field) {
				t.Errorf("the message %q does not name %s", message, test.field)
			}
			e.remove(t, template)
		})
	}
	e.backend.Answer(backend.Status{Message: "spec.backendConfig.resources[0]: is confidential"}, nil)
	refused := newTemplate("refused", "Refused")
	e.create(t, refused)
	if got, message := e.unready(t, "refused", infrastructurev1alpha1.ReasonBackendNotReady); !strings.HasPrefix(message, "spec.backendConfig.resources[0]") || got.Status.Registered.SchemaInAPIExport {
		t.Errorf("the message is %q, registered %+v", message, got.Status.Registered)
	}
	e.backend.Answer(backend.Status{Ready: true}, nil)
	e.remove(t, refused)
	if after := e.exported(t); !maps.Equal(after, exported) {
		t.Errorf("the export lists %v, before %v", after, exported)
	}
	if after := e.definitions(t); !maps.Equal(after, definitions) {
		t.Errorf("there are definitions %v, before %v", after, definitions)
	}
	e.ready(t, "redis")
}

// testLongNames uses the longest names that are allowed.
func (e *env) testLongNames(t *testing.T) {
	template := newTemplate(strings.Repeat("n", 63), "", withNames("K"+strings.Repeat("k", 58), strings.Repeat("r", 63)))
	e.create(t, template)
	e.ready(t, template.Name)
	e.remove(t, template)
}

// testRivals creates two Templates of the same kind: when the first is gone, the second gets the kind.
func (e *env) testRivals(t *testing.T) {
	first, second := newTemplate("first", "Wanted"), newTemplate("second", "Wanted")
	e.create(t, first)
	e.ready(t, "first")
	e.create(t, second)
	if _, message := e.unready(t, "second", infrastructurev1alpha1.ReasonInvalidSpec); !strings.Contains(message, "of Template first") {
		t.Errorf("the message is %q", message)
	}
	if err := e.c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	e.ready(t, "second")
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := e.c.Get(t.Context(), client.ObjectKey{Name: "wanted." + group}, definition); err != nil || definition.Labels[group+"/template"] != "second" {
		t.Errorf("the definition is %v, %v", definition.Labels, err)
	}
	e.remove(t, second)
}

// testRefusedNames creates a Template with a kind of a CRD that does not belong to the provider: the Template reports that, and becomes ready
// when the CRD is gone.
func (e *env) testRefusedNames(t *testing.T) {
	foreign := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "foreigners." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "foreigners", Kind: "Foreign"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	if err := e.c.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition to be established", func(ctx context.Context) error {
		if err := e.c.Get(ctx, client.ObjectKeyFromObject(foreign), foreign); err != nil || !apihelpers.IsCRDConditionTrue(foreign, apiextensionsv1.Established) {
			return fmt.Errorf("status %+v, %w", foreign.Status, err)
		}
		return nil
	})
	wanted := newTemplate("foreign", "Foreign")
	e.create(t, wanted)
	if _, message := e.unready(t, "foreign", infrastructurev1alpha1.ReasonCRDError); !strings.Contains(message, "is already in use") {
		t.Errorf("the message is %q", message)
	}
	if err := e.c.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	e.ready(t, "foreign")
	e.remove(t, wanted)
}

// hanging is a backend that blocks in the set-up of the Template "hanging" until it is released.
type hanging struct {
	*stub.Backend
	release chan struct{}
}

func (h *hanging) SetupTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	status, err := h.Backend.SetupTemplate(ctx, t)
	if t.Name != "hanging" {
		return status, err
	}
	select {
	case <-h.release:
		return status, err
	case <-ctx.Done():
		return backend.Status{}, ctx.Err()
	}
}

// testHangingBackend blocks the backend for one Template: others become ready.
func (e *env) testHangingBackend(t *testing.T) {
	first, other := newTemplate("hanging", "Hanging"), newTemplate("other", "Other")
	e.create(t, first)
	shardtesting.Eventually(t, "the backend to hang", func(context.Context) error {
		for _, called := range e.backend.SetUp() {
			if called.Name == "hanging" {
				return nil
			}
		}
		return fmt.Errorf("it is not called")
	})
	e.create(t, other)
	e.ready(t, "other")
	close(e.release)
	e.ready(t, "hanging")
	e.remove(t, first)
	e.remove(t, other)
}

// remove deletes a Template, and waits until it is gone.
func (e *env) remove(t *testing.T, template *infrastructurev1alpha1.Template) {
	t.Helper()
	if err := e.c.Delete(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, template.Name+" to be gone", func(ctx context.Context) error {
		if err := e.c.Get(ctx, client.ObjectKey{Name: template.Name}, template.DeepCopy()); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// definitions returns the UIDs of all CRDs by name.
func (e *env) definitions(t *testing.T) map[string]string {
	t.Helper()
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := e.c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Name] = string(list.Items[i].UID)
	}
	return found
}

// unready waits until a Template is not ready for a reason, and returns it with the message.
func (e *env) unready(t *testing.T, name, reason string) (*infrastructurev1alpha1.Template, string) {
	t.Helper()
	got := e.waitFor(t, name, infrastructurev1alpha1.ConditionReady, metav1.ConditionFalse, reason)
	return got, meta.FindStatusCondition(got.Status.Conditions, infrastructurev1alpha1.ConditionReady).Message
}
