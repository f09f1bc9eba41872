package crdhandler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// doRaw sends a request for widgets and returns status, body and warnings.
func (w *workspace) doRaw(method, path, contentType, accept, body string) (int, string, []string) {
	w.Helper()
	headers := []string{"Accept", accept}
	if contentType != "" {
		headers = append(headers, "Content-Type", contentType)
	}
	response, text := shardtesting.Send(w, w.config, method, path, body, headers...)
	return response.StatusCode, text, response.Header.Values("Warning")
}

const (
	widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"
	acceptJSON  = "application/json"
)

func testSubresources(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	w.create(newWidget("one", map[string]any{"replicas": int64(1)}))

	scaled, err := w.objects("v1").Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
	if err != nil || scaled.GetKind() != "Scale" {
		t.Fatalf("patching the scale: %v, %v", scaled, err)
	}
	one := w.get("one")
	if replicas, _, _ := unstructured.NestedInt64(one.Object, "spec", "replicas"); replicas != 3 || one.GetGeneration() != 2 {
		t.Errorf("after scaling: %v", one)
	}
	_ = unstructured.SetNestedField(one.Object, "Running", "status", "phase")
	_ = unstructured.SetNestedField(one.Object, "ignored", "spec", "size")
	updated, err := w.objects("v1").UpdateStatus(t.Context(), one, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	phase, _, _ := unstructured.NestedString(updated.Object, "status", "phase")
	if size, found, _ := unstructured.NestedString(updated.Object, "spec", "size"); phase != "Running" || found || updated.GetGeneration() != 2 {
		t.Errorf("an update of the status wrote phase %q and size %q, generation %d", phase, size, updated.GetGeneration())
	}
	_ = unstructured.SetNestedField(updated.Object, "Ignored", "status", "phase")
	updated, err = w.objects("v1").Update(t.Context(), updated, metav1.UpdateOptions{})
	if phase, _, _ := unstructured.NestedString(updated.Object, "status", "phase"); err != nil || phase != "Running" {
		t.Errorf("an update of the object wrote the status %q, %v", phase, err)
	}
}

func testVersions(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	definition := newDefinition("example.com")
	old := *definition.Spec.Versions[0].DeepCopy()
	old.Name, old.Storage, old.Deprecated = "v1beta1", false, true
	hidden := *definition.Spec.Versions[0].DeepCopy()
	hidden.Name, hidden.Storage, hidden.Served = "v1alpha1", false, false
	definition.Spec.Versions = append(definition.Spec.Versions, old, hidden)
	w.define(definition)
	w.create(newWidget("one", map[string]any{"size": "big"}))
	got, err := w.objects("v1beta1").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || got.GetAPIVersion() != "example.com/v1beta1" {
		t.Errorf("in the previous version: %v, %v", got, err)
	}
	if _, err := w.objects("v1alpha1").Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("in a version that is not served: got %v, want NotFound", err)
	}
	for accept, kind := range map[string]string{acceptJSON: "Widget", "application/yaml": "kind: Widget", "application/json;as=Table;v=v1;g=meta.k8s.io": "Table"} {
		status, body, warnings := w.doRaw(http.MethodGet, strings.Replace(widgetsPath, "v1", "v1beta1", 1)+"/one", "", accept, "")
		if status != http.StatusOK || !strings.Contains(body, kind) || len(warnings) != 1 || !strings.Contains(warnings[0], "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget") {
			t.Errorf("%s: %d %q, warnings %q", accept, status, body, warnings)
		}
	}

	// After a change of the storage version stored objects remain readable, and the next write stores the new version.
	established := w.waitEstablished(definition.Name)
	established.Spec.Versions[0].Storage, established.Spec.Versions[1].Storage = false, true
	changed, err := w.definitions().Update(t.Context(), established, metav1.UpdateOptions{})
	if err != nil || !slices.Equal(changed.Status.StoredVersions, []string{"v1", "v1beta1"}) {
		t.Fatalf("stored versions are %v, %v", changed.Status.StoredVersions, err)
	}
	shardtesting.Eventually(t, "the object is stored in the new version", func(ctx context.Context) error {
		if _, err := w.objects("v1").Patch(ctx, "one", types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{"at":"%d"}}}`, len(shard.Stored(t)))), metav1.PatchOptions{}); err != nil {
			return err
		}
		for key, value := range shard.Stored(t) {
			if strings.HasSuffix(key, "/example.com/widgets/customresources/"+w.name+"/default/one") {
				if strings.Contains(string(value), "example.com/v1beta1") {
					return nil
				}
				return fmt.Errorf("stored value is %s", value)
			}
		}
		return fmt.Errorf("no key of the object")
	})
	w.get("one")
}

func testPrinterColumns(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	definition := newDefinition("example.com")
	definition.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "string", JSONPath: ".spec.size"}}
	w.define(definition)
	w.create(newWidget("one", map[string]any{"size": "big"}))
	_, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", "application/json;as=Table;v=v1;g=meta.k8s.io", "")
	var table metav1.Table
	if err := json.Unmarshal([]byte(body), &table); err != nil || len(table.Rows) != 1 || len(table.ColumnDefinitions) != 2 || table.ColumnDefinitions[1].Name != "Size" || table.Rows[0].Cells[1] != "big" {
		t.Errorf("the table is %s, %v", body, err)
	}
}

func testValidationRulesAndRatcheting(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	definition := newDefinition("example.com")
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = apiextensionsv1.ValidationRules{{
		Rule: "!has(self.spec.size) || self.spec.size != 'huge'", Message: "too large",
	}}
	defined := w.define(definition)
	if _, err := w.objects("v1").Create(t.Context(), newWidget("one", map[string]any{"size": "huge"}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("an object that violates a rule: got %v", err)
	}
	w.create(newWidget("one", map[string]any{"size": "big"}))
	properties := defined.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	size := properties["spec"].Properties["size"]
	size.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"small"`)}}
	properties["spec"].Properties["size"] = size
	if _, err := w.definitions().Update(t.Context(), defined, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the new schema is served", func(ctx context.Context) error {
		_, err := w.objects("v1").Create(ctx, newWidget("two", map[string]any{"size": "big"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	if _, err := w.objects("v1").Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"colour":"blue"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("unchanged fields that were valid before must be accepted: %v", err)
	}
	if _, err := w.objects("v1").Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"size":"medium"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a change that violates the new schema: got %v, want Invalid", err)
	}
}

func testFieldSelectors(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	definition := newDefinition("example.com")
	definition.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.size"}}
	w.define(definition)
	w.create(newWidget("one", map[string]any{"size": "big"}))
	w.create(newWidget("two", map[string]any{"size": "small"}))
	for _, version := range []string{"", "0"} {
		shardtesting.Eventually(t, "selecting by a field", func(ctx context.Context) error {
			list, err := w.objects("v1").List(ctx, metav1.ListOptions{FieldSelector: "spec.size=small", ResourceVersion: version})
			if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "two" {
				return fmt.Errorf("got %v, %w", list, err)
			}
			return nil
		})
	}
	if _, err := w.objects("v1").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.colour=red"}); !apierrors.IsBadRequest(err) {
		t.Errorf("by a field that is not selectable: got %v, want BadRequest", err)
	}
}

func testDryRun(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	w.create(newWidget("kept", nil))
	forged := newWidget("dry", nil)
	forged.SetAnnotations(map[string]string{"kcp.io/cluster": "root"})
	dry := []string{metav1.DryRunAll}
	created, err := w.objects("v1").Create(t.Context(), forged, metav1.CreateOptions{DryRun: dry})
	if err != nil || created.GetAnnotations()["kcp.io/cluster"] != w.name {
		t.Errorf("a dry run of a creation: %v, %v", created.GetAnnotations(), err)
	}
	kept := w.get("kept")
	kept.SetAnnotations(forged.GetAnnotations())
	updated, err := w.objects("v1").Update(t.Context(), kept, metav1.UpdateOptions{DryRun: dry})
	if err != nil || updated.GetAnnotations()["kcp.io/cluster"] != w.name {
		t.Errorf("a dry run of an update: %v, %v", updated.GetAnnotations(), err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "access"}}}
	if _, err := shard.Kubernetes(t, w.config).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Errorf("a dry run of a review: %v", err)
	}
	maps := shard.Kubernetes(t, w.config).CoreV1().ConfigMaps("default")
	config, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dry", Annotations: forged.GetAnnotations()}}, metav1.CreateOptions{DryRun: dry})
	if err != nil || config.Annotations["kcp.io/cluster"] != w.name {
		t.Errorf("a dry run of a config map: %v, %v", config.Annotations, err)
	}
}

func testFieldValidation(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	body := func(name string) string {
		return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"},"spec":{"stray":1}}`
	}
	status, text, _ := w.doRaw(http.MethodPost, widgetsPath+"?fieldValidation=Strict", acceptJSON, acceptJSON, body("strict"))
	if status != http.StatusBadRequest || !strings.Contains(text, `unknown field \"spec.stray\"`) {
		t.Errorf("strict: %d %s", status, text)
	}
	status, _, warnings := w.doRaw(http.MethodPost, widgetsPath+"?fieldValidation=Warn", acceptJSON, acceptJSON, body("warn"))
	if status != http.StatusCreated || len(warnings) != 1 || !strings.Contains(warnings[0], `unknown field`) {
		t.Errorf("with a warning: %d %q", status, warnings)
	}
	status, _, warnings = w.doRaw(http.MethodPost, widgetsPath+"?fieldValidation=Ignore", acceptJSON, acceptJSON, body("ignore"))
	if status != http.StatusCreated || len(warnings) != 0 {
		t.Errorf("ignoring: %d %q", status, warnings)
	}
}

func testServerSideApply(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	apply := func(manager, size string, options metav1.ApplyOptions) error {
		options.FieldManager = manager
		_, err := w.objects("v1").Apply(t.Context(), "one", newWidget("one", map[string]any{"size": size}), options)
		return err
	}
	if err := apply("first", "big", metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if _, err := w.objects("v1").Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run created an object: %v", err)
	}
	if err := apply("first", "big", metav1.ApplyOptions{}); err != nil {
		t.Error(err)
	}
	if err := apply("second", "small", metav1.ApplyOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("another's field: got %v, want a conflict", err)
	}
	if err := apply("second", "small", metav1.ApplyOptions{Force: true}); err != nil {
		t.Error(err)
	}
	if err := apply("first", "stray", metav1.ApplyOptions{Force: true}); err != nil {
		t.Error(err)
	}
}

// testAppliesAfterRetirement applies objects again that were applied in a version that the definition does not have any more.
func testAppliesAfterRetirement(t *testing.T, shard *shardtesting.Shard) {
	definition := newDefinition("example.com")
	old := *definition.Spec.Versions[0].DeepCopy()
	old.Name, old.Storage = "v1beta1", false
	both := definition.DeepCopy()
	both.Spec.Versions = append(both.Spec.Versions, old)
	apply := func(w *workspace, version, manager string, spec map[string]any) (*unstructured.Unstructured, error) {
		object := newWidget("one", spec)
		object.SetAPIVersion("example.com/" + version)
		return w.objects(version).Apply(t.Context(), "one", object, metav1.ApplyOptions{FieldManager: manager})
	}
	for name, retire := range map[string]func(w *workspace) func(){
		"of a definition": func(w *workspace) func() {
			defined := w.define(both)
			return func() {
				defined.Spec.Versions = definition.Spec.Versions
				if _, err := w.definitions().Update(t.Context(), defined, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		},
		"of a bound resource": func(w *workspace) func() {
			e := newExportedResource(t, shard, both)
			w.bind(shard, "widgets", e)
			return func() { w.rebind(shard, "widgets", e.replaceSchema(t, definition)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t, shard)
			retireVersion := retire(w)
			if _, err := apply(w, "v1beta1", "first", map[string]any{"size": "big", "replicas": int64(2)}); err != nil {
				t.Fatal(err)
			}
			if _, err := apply(w, "v1", "second", map[string]any{"replicas": int64(2)}); err != nil {
				t.Fatal(err)
			}
			retireVersion()
			shardtesting.Eventually(t, "the version is retired", func(ctx context.Context) error {
				if _, err := w.objects("v1beta1").Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("got %w", err)
				}
				return nil
			})
			if _, err := apply(w, "v1", "second", map[string]any{"replicas": int64(2), "size": "small"}); !apierrors.IsConflict(err) {
				t.Errorf("a field that another manager owns by the retired version: got %v, want a conflict", err)
			}
			got, err := apply(w, "v1", "first", map[string]any{"replicas": int64(2)})
			if err != nil {
				t.Fatal(err)
			}
			if _, found, _ := unstructured.NestedString(got.Object, "spec", "size"); found {
				t.Errorf("a field that its owner does not apply any more is left: %v", got)
			}
			for _, owner := range got.GetManagedFields() {
				if owner.APIVersion != "example.com/v1" {
					t.Errorf("owner %+v", owner)
				}
			}
		})
	}
}

func testDeletion(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	for i := range 5 {
		obj := newWidget(fmt.Sprintf("w%d", i), nil)
		obj.SetLabels(map[string]string{"even": fmt.Sprint(i%2 == 0)})
		w.create(obj)
	}
	wrong := types.UID("another")
	if err := w.objects("v1").Delete(t.Context(), "w1", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		t.Errorf("another object of that name: got %v, want a conflict", err)
	}
	if err := w.objects("v1").Delete(t.Context(), "w1", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	w.get("w1")
	if err := w.objects("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "even=true"}); err != nil {
		t.Error(err)
	}
	list, err := w.objects("v1").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("remaining objects are %v, %v", list, err)
	}
	foreground := metav1.DeletePropagationForeground
	if err := w.objects("v1").Delete(t.Context(), "w1", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Error(err)
	}
}
