package crdhandler_test

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	typed "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestCustomResources runs the tests that share a shard.
func TestCustomResources(t *testing.T) {
	shard := shardtesting.Start(t)
	for name, test := range map[string]func(*testing.T, *shardtesting.Shard){
		"a definition is usable once established":               testEstablishedDefinition,
		"two workspaces define one name differently":            testSameNameInTwoWorkspaces,
		"a deleted definition is deleted with its objects only": testDefinitionDeletion,
		"status and scale":                  testSubresources,
		"several versions":                  testVersions,
		"columns of tables":                 testPrinterColumns,
		"JSON paths without a bound":        testRefusedPaths,
		"JSON paths that are stored":        testStoredPaths,
		"patches and selectors":             testPatchLimits,
		"validation rules and ratcheting":   testValidationRulesAndRatcheting,
		"field selectors":                   testFieldSelectors,
		"field validation":                  testFieldValidation,
		"dry runs":                          testDryRun,
		"server-side apply":                 testServerSideApply,
		"applying after a retirement":       testAppliesAfterRetirement,
		"objects are deleted":               testDeletion,
		"many definitions concurrently":     testConcurrentDefinitions,
		"names per workspace":               testNamesPerWorkspace,
		"watches end with their definition": testWatchEnds,
		"metadata over all workspaces":      testMetadataOfAllWorkspaces,
		"built-in resources are kept":       testBuiltInIsKept,
		"deleting a collection of definitions deletes the objects": testDeleteCollection,
		"conversion webhook":                                testConversionWebhook,
		"no conversion webhook at a service":                testConversionWebhookService,
		"deleting objects that cannot be converted":         testUnreadableObjectDeletion,
		"deleting a namespace and a workspace with objects": testNamespaceAndWorkspaceDeletion,
		"kinds of Kubernetes":                               testKubernetesKinds,
		"groups without a dot":                              testGroupsWithoutDot,
		"definitions of built-in resources have no effect":  testBuiltInsSurviveDefinitions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shard)
		})
	}
}

// workspace is a workspace with its clients.
type workspace struct {
	*testing.T
	// name is the name of its logical cluster, workspace its own.
	name, workspace string
	config          *rest.Config
}

func newWorkspace(t *testing.T, shard *shardtesting.Shard) *workspace {
	t.Helper()
	name := "crd-" + rand.String(6)
	created := shard.NewWorkspace(t, "root", name)
	return &workspace{T: t, name: created.Spec.Cluster, workspace: name, config: shardtesting.At(shard.Admin(t), created.Spec.Cluster)}
}

func (w *workspace) definitions() typed.CustomResourceDefinitionInterface {
	return clientset.NewForConfigOrDie(w.config).ApiextensionsV1().CustomResourceDefinitions()
}

// define creates a definition and returns when it is established.
func (w *workspace) define(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	w.Helper()
	created, err := w.definitions().Create(w.Context(), definition, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return w.waitEstablished(created.Name)
}

// waitEstablished and waitNotAccepted wait with a watch, without polling.
func (w *workspace) waitEstablished(name string) *apiextensionsv1.CustomResourceDefinition {
	w.Helper()
	return w.waitFor(name, func(got *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(got, apiextensionsv1.Established)
	})
}

// waitNotAccepted waits until a name of a definition is not accepted.
func (w *workspace) waitNotAccepted(definition, name string) {
	w.Helper()
	got := w.waitFor(definition, func(got *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.FindCRDCondition(got, apiextensionsv1.NamesAccepted) != nil
	})
	accepted := apihelpers.FindCRDCondition(got, apiextensionsv1.NamesAccepted)
	if accepted.Status != apiextensionsv1.ConditionFalse || !strings.Contains(accepted.Message, `"`+name+`" is already in use`) || !apihelpers.IsCRDConditionFalse(got, apiextensionsv1.Established) {
		w.Errorf("%s has the conditions %+v", definition, got.Status.Conditions)
	}
}

func (w *workspace) waitFor(name string, done func(*apiextensionsv1.CustomResourceDefinition) bool) *apiextensionsv1.CustomResourceDefinition {
	w.Helper()
	watcher, err := w.definitions().Watch(w.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if got, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition); ok && done(got) {
			return got
		}
	}
	w.Fatalf("%s did not get the expected status while it was watched", name)
	return nil
}

func (w *workspace) clusterObjectsOf(group, version string) dynamic.NamespaceableResourceInterface {
	return dynamic.NewForConfigOrDie(w.config).Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"})
}

func (w *workspace) objectsOf(group, version string) dynamic.ResourceInterface {
	return w.clusterObjectsOf(group, version).Namespace("default")
}

func (w *workspace) clusterObjects(version string) dynamic.NamespaceableResourceInterface {
	return w.clusterObjectsOf("example.com", version)
}

func (w *workspace) objects(version string) dynamic.ResourceInterface {
	return w.objectsOf("example.com", version)
}

func (w *workspace) create(obj *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	gv := obj.GroupVersionKind().GroupVersion()
	created, err := w.objectsOf(gv.Group, gv.Version).Create(w.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

func (w *workspace) get(name string) *unstructured.Unstructured {
	w.Helper()
	got, err := w.objects("v1").Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return got
}

// newDefinition defines a namespaced kind with one version, status and scale.
func newDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	red := apiextensionsv1.JSON{Raw: []byte(`"red"`)}
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	number := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	labelSelector := ".status.selector"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList", ShortNames: []string{"wg"}, Categories: []string{"all"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"size": text, "colour": {Type: "string", Default: &red}, "replicas": number,
						}},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": number, "selector": text, "phase": text}},
					},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &labelSelector},
				},
			}},
		},
	}
}

func newWidget(name string, spec map[string]any) *unstructured.Unstructured {
	if spec == nil {
		spec = map[string]any{}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": spec}}
	obj.SetName(name)
	obj.SetNamespace("default")
	return obj
}

func newWidgetIn(namespace string) *unstructured.Unstructured {
	obj := newWidget("one", nil)
	obj.SetNamespace(namespace)
	return obj
}

func withGroup(obj *unstructured.Unstructured, group string) *unstructured.Unstructured {
	obj.SetAPIVersion(group + "/" + obj.GroupVersionKind().Version)
	return obj
}
