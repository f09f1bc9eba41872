package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/atoll-dev/atoll/syncagent/source"
)

// kubernetes serves the discovery and OpenAPI documents of the Kubernetes release.
func kubernetes(t *testing.T) *discovery.DiscoveryClient {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(strings.TrimSpace(string(module)), "api")
	documents, err := filepath.Glob(filepath.Join(root, "openapi-spec", "v3", "*_openapi.json"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("no OpenAPI documents in %s: %v", root, err)
	}
	paths := map[string]any{}
	for _, document := range documents {
		path := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(document), "_openapi.json"), "__", "/")
		paths[path] = map[string]string{"serverRelativeURL": "/openapi/v3/" + path}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, isDocument := strings.CutPrefix(r.URL.Path, "/openapi/v3/")
		file := filepath.Join(root, "discovery", strings.ReplaceAll(strings.Trim(r.URL.Path, "/"), "/", "__")+".json")
		if isDocument {
			file = filepath.Join(root, "openapi-spec", "v3", strings.ReplaceAll(path, "/", "__")+"_openapi.json")
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/openapi/v3" {
			_ = json.NewEncoder(w).Encode(map[string]any{"paths": paths})
			return
		}
		text, err := os.ReadFile(file)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// reader is a client of a cluster with some definitions.
func reader(t *testing.T, definitions ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(definitions...).Build()
}

// validate applies the validation of APIResourceSchemas. The core group is valid in schemas only.
func validate(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) error {
	t.Helper()
	definition = definition.DeepCopy()
	if definition.Spec.Group == "" || !strings.Contains(definition.Spec.Group, ".") {
		definition.Spec.Group = "any.group"
	}
	definition.Name = definition.Spec.Names.Plural + "." + definition.Spec.Group
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			definition.Status.StoredVersions = []string{version.Name}
		}
	}
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, &internal, nil); err != nil {
		return err
	}
	return validation.ValidateCustomResourceDefinition(context.Background(), &internal).ToAggregate()
}

func TestEveryKindOfKubernetesHasAValidDefinition(t *testing.T) {
	d, none := kubernetes(t), reader(t)
	_, lists, err := d.ServerGroupsAndResourcesWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[schema.GroupKind]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !strings.Contains(resource.Name, "/") && slices.Contains(resource.Verbs, "watch") {
				kinds[schema.GroupKind{Group: gv.Group, Kind: resource.Kind}] = true
			}
		}
	}
	if len(kinds) < 50 {
		t.Fatalf("only %d kinds found", len(kinds))
	}
	for kind := range kinds {
		definition, err := source.Definition(t.Context(), d, none, kind.Group, kind.Kind)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if err := validate(t, definition); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if text, err := json.Marshal(definition); err != nil || len(text) > 1<<20 {
			t.Errorf("%s: the definition has %d bytes (%v), more than etcd stores", kind, len(text), err)
		}
	}
}

// property returns the schema of a field; "[]" are the items of a list, "{}" the values of a map.
func property(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition, version, path string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	at := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if at < 0 {
		t.Fatalf("%s has no version %s", definition.Name, version)
	}
	current := *definition.Spec.Versions[at].Schema.OpenAPIV3Schema
	for _, part := range strings.Split(path, ".") {
		switch {
		case part == "[]" && current.Items != nil:
			current = *current.Items.Schema
		case part == "{}" && current.AdditionalProperties != nil:
			current = *current.AdditionalProperties.Schema
		default:
			next, ok := current.Properties[part]
			if !ok {
				t.Fatalf("%s has no field %s at %s", definition.Name, path, part)
			}
			current = next
		}
	}
	return current
}

func TestSchemasOfKubernetes(t *testing.T) {
	d, none := kubernetes(t), reader(t)
	for name, tc := range map[string]struct {
		group, kind, version, path, want string
	}{
		"metadata is not described":                  {"apps", "Deployment", "v1", "metadata", `{"type":"object"}`},
		"a number or a string":                       {"", "Service", "v1", "spec.ports.[].targetPort", `{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}`},
		"a quantity":                                 {"", "Pod", "v1", "spec.containers.[].resources.limits.{}", `{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}`},
		"any object":                                 {"apps", "ControllerRevision", "v1", "data", `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`},
		"a default that is a key":                    {"", "Pod", "v1", "spec.containers.[].ports.[].protocol", `{"type":"string","default":"TCP"}`},
		"a default that is only Go's zero value":     {"", "Pod", "v1", "spec.containers.[].name", `{"type":"string"}`},
		"a time":                                     {"", "Pod", "v1", "status.startTime", `{"type":"string","format":"date-time","nullable":true}`},
		"a map of texts":                             {"", "ConfigMap", "v1", "data", `{"type":"object","additionalProperties":{"type":"string"}}`},
		"a list that clients write as null":          {"rbac.authorization.k8s.io", "Role", "v1", "rules.[].verbs", `{"type":"array","items":{"type":"string"},"nullable":true,"x-kubernetes-list-type":"atomic"}`},
		"a reference that is atomic":                 {"rbac.authorization.k8s.io", "RoleBinding", "v1", "roleRef.kind", `{"type":"string"}`},
		"a component in itself may have any content": {"apiextensions.k8s.io", "CustomResourceDefinition", "v1", "spec.versions.[].schema.openAPIV3Schema.not", `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`},
		"a component without a type may be anything": {"apiextensions.k8s.io", "CustomResourceDefinition", "v1", "spec.versions.[].schema.openAPIV3Schema.items", `{"x-kubernetes-preserve-unknown-fields":true}`},
		"the labels of a template":                   {"apps", "Deployment", "v1", "spec.template.metadata.labels", `{"type":"object","additionalProperties":{"type":"string"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			definition, err := source.Definition(t.Context(), d, none, tc.group, tc.kind)
			if err != nil {
				t.Fatal(err)
			}
			field := property(t, definition, tc.version, tc.path)
			field.Description = ""
			got, err := json.Marshal(field)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	definition, err := source.Definition(t.Context(), d, none, "", "Service")
	if err != nil {
		t.Fatal(err)
	}
	ports := property(t, definition, "v1", "spec.ports")
	if diff := cmp.Diff([]string{"port", "protocol"}, ports.XListMapKeys); diff != "" || ports.Description == "" {
		t.Errorf("spec.ports of Service: keys (-want +got):\n%s\ndescription %q", diff, ports.Description)
	}
}

// A13: versions, names and subresources of a built-in type.
func TestDefinitionsOfKubernetes(t *testing.T) {
	d, none := kubernetes(t), reader(t)
	for _, tc := range []struct {
		group, kind, name, versions, names string
		scope                              apiextensionsv1.ResourceScope
		approval                           string
	}{
		{"rbac.authorization.k8s.io", "Role", "roles.rbac.authorization.k8s.io", "v1*", "Role RoleList role roles [] []", apiextensionsv1.NamespaceScoped, "unapproved, published by a sync agent"},
		{"", "ConfigMap", "configmaps.core", "v1*", "ConfigMap ConfigMapList configmap configmaps [cm] []", apiextensionsv1.NamespaceScoped, "unapproved, published by a sync agent"},
		{"apps", "Deployment", "deployments.apps", "v1* status scale", "Deployment DeploymentList deployment deployments [deploy] [all]", apiextensionsv1.NamespaceScoped, ""},
		{"", "ReplicationController", "replicationcontrollers.core", "v1* status scale", "ReplicationController ReplicationControllerList replicationcontroller replicationcontrollers [rc] [all]", apiextensionsv1.NamespaceScoped, "unapproved, published by a sync agent"},
		{"autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers.autoscaling", "v2* status v1 status", "HorizontalPodAutoscaler HorizontalPodAutoscalerList horizontalpodautoscaler horizontalpodautoscalers [hpa] [all]", apiextensionsv1.NamespaceScoped, ""},
		{"", "Node", "nodes.core", "v1* status", "Node NodeList node nodes [no] []", apiextensionsv1.ClusterScoped, "unapproved, published by a sync agent"},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			definition, err := source.Definition(t.Context(), d, none, tc.group, tc.kind)
			if err != nil {
				t.Fatal(err)
			}
			names := definition.Spec.Names
			gotNames := strings.Join([]string{
				names.Kind, names.ListKind, names.Singular, names.Plural,
				"[" + strings.Join(names.ShortNames, " ") + "]", "[" + strings.Join(names.Categories, " ") + "]",
			}, " ")
			var versions []string
			for _, version := range definition.Spec.Versions {
				name := version.Name
				if version.Storage {
					name += "*"
				}
				versions = append(versions, name)
				if version.Subresources != nil && version.Subresources.Status != nil {
					versions = append(versions, "status")
				}
				if version.Subresources != nil && version.Subresources.Scale != nil {
					versions = append(versions, "scale")
				}
			}
			want := []string{tc.name, tc.versions, tc.names, string(tc.scope), tc.approval}
			got := []string{definition.Name, strings.Join(versions, " "), gotNames, string(definition.Spec.Scope), definition.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestKindsThatAreNotServed(t *testing.T) {
	d, none := kubernetes(t), reader(t)
	for _, kind := range []schema.GroupKind{{Group: "none.example.com", Kind: "Pod"}, {Kind: "None"}, {Kind: "PodStatus"}, {Group: "autoscaling", Kind: "Scale"}} {
		if _, err := source.Definition(t.Context(), d, none, kind.Group, kind.Kind); !errors.Is(err, source.ErrNotServed) {
			t.Errorf("%s: got %v, want ErrNotServed", kind, err)
		}
	}
}

// leases is a definition that replaces the built-in kind of the same name in discovery.
func leases() *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	definition.Name, definition.Generation = "leases.coordination.k8s.io", 7
	definition.Labels = map[string]string{"a": "b"}
	definition.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "https://example.com/1", "other": "annotation"}
	definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "coordination.k8s.io", Scope: apiextensionsv1.NamespaceScoped,
		Names:      apiextensionsv1.CustomResourceDefinitionNames{Kind: "Lease", Plural: "leases"},
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Description: "kept"},
			}},
			{Name: "v1beta1", Served: true},
			{Name: "v1alpha1", Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Description: "without a type"}}},
			}},
		},
	}
	return definition
}

func TestDefinitionOfTheClusterIsPreferred(t *testing.T) {
	definition, err := source.Definition(t.Context(), kubernetes(t), reader(t, leases()), "coordination.k8s.io", "Lease")
	if err != nil {
		t.Fatal(err)
	}
	open := `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	var schemas []string
	for _, version := range definition.Spec.Versions {
		text, err := json.Marshal(version.Schema.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, version.Name+" "+string(text))
	}
	if diff := cmp.Diff([]string{`v1 {"description":"kept","type":"object"}`, "v1beta1 " + open, "v1alpha1 " + open}, schemas); diff != "" {
		t.Errorf("schemas (-want +got):\n%s", diff)
	}
	if definition.Spec.Conversion != nil || definition.Labels != nil || definition.Generation != 7 {
		t.Errorf("conversion %v, labels %v, generation %d", definition.Spec.Conversion, definition.Labels, definition.Generation)
	}
	if diff := cmp.Diff(map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "https://example.com/1"}, definition.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if names := definition.Spec.Names; names.ListKind != "LeaseList" || names.Singular != "lease" {
		t.Errorf("names are %v", names)
	}
}

func TestDefinitionsOfOldClustersKeepUnknownFields(t *testing.T) {
	old := leases()
	old.Spec.PreserveUnknownFields = true
	definition, err := source.Definition(t.Context(), kubernetes(t), reader(t, old), "coordination.k8s.io", "Lease")
	if err != nil {
		t.Fatal(err)
	}
	kept := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields
	if definition.Spec.PreserveUnknownFields || kept == nil || !*kept {
		t.Errorf("preserveUnknownFields is %t, in the schema %v", definition.Spec.PreserveUnknownFields, kept)
	}
}

func TestUnreadableDefinitionsAreNoAbsentOnes(t *testing.T) {
	forbidden := interceptor.NewClient(reader(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{}, "leases.coordination.k8s.io", errors.New("no"))
		},
	})
	if _, err := source.Definition(t.Context(), kubernetes(t), forbidden, "coordination.k8s.io", "Lease"); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
}
