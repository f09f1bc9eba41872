package crdhandler_test

import (
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	ownapiextensions "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// newKubernetesDefinition defines a kind of Kubernetes in its group.
func newKubernetesDefinition(group, plural, singular, kind string) *apiextensionsv1.CustomResourceDefinition {
	keep := true
	definition := newDefinition(group)
	definition.Name = plural + "." + group
	definition.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved, it is a test"}
	definition.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List"}
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}
	definition.Spec.Versions[0].Subresources.Scale = nil
	return definition
}

func testKubernetesKinds(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newKubernetesDefinition("networking.k8s.io", "ingresses", "ingress", "Ingress"))
	w.define(newDefinition("example.com"))
	objects := dynamic.NewForConfigOrDie(w.config).Resource(schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}).Namespace("default")
	created, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
		"metadata": map[string]any{"name": "one", "finalizers": []any{"example.com/one"}},
		"spec":     map[string]any{"ingressClassName": "fast", "replicas": int64(3)},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(body string, options metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error) {
		return objects.Patch(t.Context(), "one", types.StrategicMergePatchType, []byte(body), options, subresources...)
	}
	add := `{"metadata":{"finalizers":["example.com/two"]},"spec":{"ingressClassName":null}}`
	if _, err := patch(add, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if unchanged, err := objects.Get(t.Context(), "one", metav1.GetOptions{}); err != nil || unchanged.GetResourceVersion() != created.GetResourceVersion() {
		t.Errorf("a dry run wrote %v, %v", unchanged, err)
	}
	patched, err := patch(add, metav1.PatchOptions{FieldManager: "patcher"})
	if err != nil {
		t.Fatal(err)
	}
	if _, found, _ := unstructured.NestedString(patched.Object, "spec", "ingressClassName"); found || len(patched.GetFinalizers()) != 2 {
		t.Errorf("only this patch adds to a list: %v", patched)
	}
	if managers := patched.GetManagedFields(); managers[len(managers)-1].Manager != "patcher" {
		t.Errorf("managers are %v", managers)
	}
	if _, err := patch(`{"metadata":{"resourceVersion":"1"}}`, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a patch of an old version: got %v, want a conflict", err)
	}
	if _, err := patch(`[]`, metav1.PatchOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("an invalid patch: got %v, want BadRequest", err)
	}
	if patched, err = patch(`{"spec":{"replicas":9},"status":{"replicas":2}}`, metav1.PatchOptions{}, "status"); err != nil {
		t.Error(err)
	}
	replicas, _, _ := unstructured.NestedInt64(patched.Object, "spec", "replicas")
	if reported, _, _ := unstructured.NestedInt64(patched.Object, "status", "replicas"); replicas != 3 || reported != 2 {
		t.Errorf("a patch of the status: %v", patched)
	}
	const inTables = "application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, path := range []string{"/apis/networking.k8s.io/v1/ingresses?includeObject=Object", "/apis/networking.k8s.io/v1/namespaces/default/ingresses/one?includeObject=Object"} {
		status, body, _ := w.doRaw(http.MethodGet, path, "", inTables, "")
		if status != http.StatusOK || !strings.Contains(body, `"name":"Hosts"`) || !strings.Contains(body, `"replicas":3`) {
			t.Errorf("the table of %s is %d %s, want one as Kubernetes prints it", path, status, body)
		}
	}
	if _, err := patch(`{"spec":{"rules":"nonsense"}}`, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if status, body, _ := w.doRaw(http.MethodGet, "/apis/networking.k8s.io/v1/ingresses", "", inTables, ""); status != http.StatusOK || strings.Contains(body, `"name":"Hosts"`) {
		t.Errorf("the table of an invalid ingress is %d %s", status, body)
	}
	w.create(newWidget("one", nil))
	status, body, _ := w.doRaw(http.MethodPatch, widgetsPath+"/one", string(types.StrategicMergePatchType), acceptJSON, `{}`)
	if status != http.StatusUnsupportedMediaType || !strings.Contains(body, "json-patch") {
		t.Errorf("a kind that Kubernetes does not have: %d %s", status, body)
	}
	testProtobufBody(t, w)
	testEmptyListInProtobuf(t, w)
}

func testGroupsWithoutDot(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newKubernetesDefinition("apps", "deployments", "deployment", "Deployment"))
	w.define(newKubernetesDefinition("batch", "jobs", "job", "Job"))
	clients := kubernetes.NewForConfigOrDie(w.config)
	created, err := clients.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Labels = map[string]string{"changed": "yes"}
	if _, err := clients.AppsV1().Deployments("default").Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clients.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	for _, group := range []string{"apps", "batch"} {
		if served, err := clients.Discovery().ServerResourcesForGroupVersion(group + "/v1"); err != nil || len(served.APIResources) == 0 {
			t.Errorf("discovery of %s returned %v, %v", group, served, err)
		}
	}
	changed, err := w.definitions().Get(t.Context(), "deployments.apps", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed.Spec.Names.ShortNames = []string{"deploy"}
	if _, err := w.definitions().Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Errorf("updating a definition: %v", err)
	}
	misnamed := newKubernetesDefinition("apps", "statefulsets", "statefulset", "StatefulSet")
	misnamed.Name = "statefulsets.batch"
	for name, definition := range map[string]*apiextensionsv1.CustomResourceDefinition{
		"another group without a dot": newDefinition("example"),
		"the core group":              newDefinition("core"),
		"no group":                    newDefinition(""),
		"the name of another group":   misnamed,
	} {
		if _, err := w.definitions().Create(t.Context(), definition, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || strings.Contains(err.Error(), "placeholder") {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
	for _, resource := range shard.Server.Registry.All() {
		if group := resource.GVR.Group; ownapiextensions.IsGroupWithoutDot(group) {
			t.Errorf("definitions may be in group %s, which is compiled in", group)
		}
	}
}

// testProtobufBody sends objects in protobuf, as typed clients do.
func testProtobufBody(t *testing.T, w *workspace) {
	t.Helper()
	typed := rest.CopyConfig(w.config)
	typed.ContentType = runtime.ContentTypeProtobuf
	ingresses := kubernetes.NewForConfigOrDie(typed).NetworkingV1().Ingresses("default")
	class := "slow"
	sent := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: networkingv1.IngressSpec{IngressClassName: &class}}
	two, err := ingresses.Create(t.Context(), sent, metav1.CreateOptions{})
	if err != nil || two.Spec.IngressClassName == nil || *two.Spec.IngressClassName != class {
		t.Fatalf("creating in protobuf: %v, %v", two, err)
	}
	class = "slower"
	two.Spec.IngressClassName = &class
	if two, err = ingresses.Update(t.Context(), two, metav1.UpdateOptions{}); err != nil || *two.Spec.IngressClassName != class {
		t.Errorf("updating in protobuf: %v, %v", two, err)
	}
	if _, err = ingresses.UpdateStatus(t.Context(), two, metav1.UpdateOptions{}); err != nil {
		t.Errorf("updating a status in protobuf: %v", err)
	}
	if err := ingresses.Delete(t.Context(), "two", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Errorf("deleting with options in protobuf: %v", err)
	}
	for name, request := range map[string]struct {
		method, path, body string
		status             int
	}{
		"invalid protobuf":                     {http.MethodPost, "/apis/networking.k8s.io/v1/namespaces/default/ingresses", "k8s\x00\xff\xff", http.StatusBadRequest},
		"a kind without protobuf":              {http.MethodPost, widgetsPath, "k8s\x00\n\x02", http.StatusUnsupportedMediaType},
		"an update of a kind without protobuf": {http.MethodPut, widgetsPath + "/one", "k8s\x00", http.StatusUnsupportedMediaType},
		"an update of its status":              {http.MethodPut, widgetsPath + "/one/status", "k8s\x00", http.StatusUnsupportedMediaType},
		"an update of its scale":               {http.MethodPut, widgetsPath + "/one/scale", "k8s\x00", http.StatusBadRequest},
		"invalid delete options":               {http.MethodDelete, widgetsPath + "/one", "k8s\x00\xff", http.StatusBadRequest},
	} {
		if status, body, _ := w.doRaw(request.method, request.path, runtime.ContentTypeProtobuf, acceptJSON, request.body); status != request.status {
			t.Errorf("%s in protobuf: %d %s, want %d", name, status, body, request.status)
		}
	}
}

// testEmptyListInProtobuf creates a Deployment whose required list of containers is there, and empty, which protobuf does not transfer.
func testEmptyListInProtobuf(t *testing.T, w *workspace) {
	t.Helper()
	definition := newKubernetesDefinition("apps", "deployments", "deployment", "Deployment")
	within := func(name string, schema apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true), Required: []string{name}, Properties: map[string]apiextensionsv1.JSONSchemaProps{name: schema}}
	}
	containers := apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}}
	whole := within("spec", within("template", within("spec", within("containers", containers))))
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema = &whole
	w.define(definition)
	for _, media := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		config := rest.CopyConfig(w.config)
		config.ContentType = media
		sent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{GenerateName: "empty-"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{}}},
		}}
		deployments := kubernetes.NewForConfigOrDie(config).AppsV1().Deployments("default")
		got, err := deployments.Create(t.Context(), sent, metav1.CreateOptions{})
		if err == nil {
			_, err = deployments.Update(t.Context(), got, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Errorf("%s: %v", media, err)
		}
	}
}
