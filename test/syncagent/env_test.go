package syncagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, apisv1alpha1.AddToScheme, syncagentv1alpha1.AddToScheme, servicesv1alpha1.AddToScheme, topologyv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// env is what one test has for itself: a provider's workspace with an export, an API group, and the name of an agent.
type env struct {
	*installation.Installation
	cluster *kubeapiserver.Cluster
	// Service is a client of the service cluster.
	Service client.Client
	// Name is the name of the test's agent, export, slice, and the prefix of its workspaces.
	Name string
	// Namespace is the namespace of the agent on the service cluster.
	Namespace string
	// Group is the API group of the test's definitions on the service cluster.
	Group string
	// Provider is the configuration of the provider in its workspace, ProviderPath the path of that workspace.
	Provider     *rest.Config
	ProviderPath string
}

var tests atomic.Int32

// newEnv starts the servers if they are not running, and creates the provider's workspace on the root shard.
func newEnv(t *testing.T) *env {
	t.Helper()
	shared.Start(t)
	name := fmt.Sprintf("t%d", tests.Add(1))
	e := &env{
		Installation: shared.installation, cluster: shared.service, Name: name, Namespace: name + "-agent", Group: name + ".example.org",
		Service: newClient(t, shared.service.Config), ProviderPath: "root:" + name,
	}
	e.definePublishedResources(t)
	create(t, e.Service, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace}})
	e.Provider = e.NewWorkspace(t, name, name+"-provider")
	provider := newClient(t, e.Provider)
	create(t, provider, &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}})
	slice := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-endpoints"}}
	slice.Spec.APIExport.Name = name
	create(t, provider, slice)
	create(t, provider, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bind"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}, Verbs: []string{"bind"}},
	}})
	create(t, provider, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bind"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bind"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
	})
	return e
}

// definePublishedResources applies the agent's definitions.
func (e *env) definePublishedResources(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "sync-agent", "crd", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, definition); err != nil {
			t.Fatal(err)
		}
		e.define(t, definition)
	}
}

func (e *env) define(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if err := e.Service.Create(t.Context(), definition); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, definition.Name+" is established", func(ctx context.Context) error {
		if err := e.Service.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", definition.Status.Conditions)
	})
}

// Define creates a definition on the service cluster: a namespaced kind of the test's group with version v1, any spec and status, and a
// status subresource.
func (e *env) Define(t *testing.T, kind string, changes ...func(*apiextensionsv1.CustomResourceDefinition)) schema.GroupVersionKind {
	t.Helper()
	singular := strings.ToLower(kind)
	preserve := true
	free := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + e.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: e.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: singular + "s", Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": free, "status": free},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
	for _, change := range changes {
		change(definition)
	}
	e.define(t, definition)
	return schema.GroupVersionKind{Group: e.Group, Version: definition.Spec.Versions[0].Name, Kind: definition.Spec.Names.Kind}
}

// Publish creates a PublishedResource of the test's agent, and removes it at the end of the test.
func (e *env) Publish(t *testing.T, name string, spec syncagentv1alpha1.PublishedResourceSpec) *syncagentv1alpha1.PublishedResource {
	t.Helper()
	published := &syncagentv1alpha1.PublishedResource{
		ObjectMeta: metav1.ObjectMeta{Name: e.Name + "-" + name, Labels: map[string]string{"agent": e.Name}}, Spec: spec,
	}
	create(t, e.Service, published)
	t.Cleanup(func() { _ = e.Service.Delete(context.Background(), published) })
	return published
}

// Of returns the spec that publishes a kind as it is.
func Of(kind schema.GroupVersionKind) syncagentv1alpha1.PublishedResourceSpec {
	return syncagentv1alpha1.PublishedResourceSpec{Resource: syncagentv1alpha1.SourceResource{APIGroup: kind.Group, Kind: kind.Kind}}
}

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// create creates an object. It retries, because its API or namespace may not exist yet.
func create(t testing.TB, c client.Client, object client.Object) {
	t.Helper()
	last := "no answer"
	shardtesting.Eventually(t, fmt.Sprintf("creating %T %s", object, object.GetName()), func(ctx context.Context) error {
		err := c.Create(ctx, object)
		if err != nil && ctx.Err() == nil {
			last = err.Error()
		}
		if err != nil {
			return fmt.Errorf("%w, before: %s", err, last)
		}
		return nil
	})
}

// newObject returns an object with a spec.
func newObject(kind schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// get reads an object again.
func get(ctx context.Context, c client.Client, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(object.GroupVersionKind())
	return current, c.Get(ctx, client.ObjectKeyFromObject(object), current)
}

// naming returns a naming.
func naming(namespace, name string) *syncagentv1alpha1.ResourceNaming {
	return &syncagentv1alpha1.ResourceNaming{Namespace: namespace, Name: name}
}
