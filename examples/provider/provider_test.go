package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// consumers is the number of workspaces that use the provider at once.
const consumers = 50

var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	directory, err := os.MkdirTemp("", "provider-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	if err := installation.Build(context.Background(), "../..", directory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = directory
	return m.Run()
}

func TestAProviderServesManyWorkspaces(t *testing.T) {
	i := installation.Start(t, bin)
	provider := i.NewWorkspace(t, "provider", "provider")
	apply(t, provider, "schema.yaml")
	apply(t, provider, "export.yaml")
	apply(t, provider, "rbac.yaml")
	start(t, provider)

	t.Run("fifty workspaces", func(t *testing.T) {
		for n := range consumers {
			name := fmt.Sprintf("consumer-%d", n)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				consumer := i.NewWorkspace(t, name, name)
				apply(t, consumer, "binding.yaml")
				expectDatabase(t, consumer)
			})
		}
	})
	t.Run("a claim can be accepted later", func(t *testing.T) { acceptsLater(t, i.NewWorkspace(t, "careful", "careful")) })
	t.Run("who unbinds and binds again is served again", func(t *testing.T) { comesBack(t, i.User(t, "root:consumer-1", "consumer-1")) })
	t.Run("what belongs to a database goes with it", func(t *testing.T) { cleansUp(t, i.User(t, "root:consumer-0", "consumer-0")) })
}

// start runs the provider until the test ends.
func start(t *testing.T, config *rest.Config) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config, "databases") }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the provider ended with %v", err)
		}
	})
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// apply creates the objects of a manifest beside the README. It retries resources that are not served yet.
func apply(t *testing.T, config *rest.Config, file string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("config", file))
	if err != nil {
		t.Fatal(err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "creating "+object.GetKind()+" "+object.GetName(), func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(newClient(t, config).Create(ctx, object))
		})
	}
}

var order = types.NamespacedName{Namespace: "default", Name: "orders"}

func get(ctx context.Context, c client.Client) (*unstructured.Unstructured, error) {
	database := &unstructured.Unstructured{}
	database.SetGroupVersionKind(databaseKind)
	return database, c.Get(ctx, order, database)
}

// expectPhase waits until the database is in a phase.
func expectPhase(t *testing.T, c client.Client, want string) (database *unstructured.Unstructured) {
	t.Helper()
	shardtesting.Eventually(t, "the database is "+want, func(ctx context.Context) (err error) {
		if database, err = get(ctx, c); err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(database.Object, "status", "phase"); phase != want {
			return fmt.Errorf("status is %v", database.Object["status"])
		}
		return nil
	})
	return database
}

// expectDatabase creates a database, and checks that the workspace contains it and its config map, and none of another
// workspace.
func expectDatabase(t *testing.T, config *rest.Config) {
	t.Helper()
	apply(t, config, "database.yaml")
	c := newClient(t, config)
	database := expectPhase(t, c, "Ready")
	want := fmt.Sprintf("orders.default.%s.databases.example.org", logicalcluster.Of(database))
	if host, _, _ := unstructured.NestedString(database.Object, "status", "host"); host != want {
		t.Errorf("host is %q, want %q", host, want)
	}
	published := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "orders-database"}, published); err != nil {
		t.Error(err)
	} else if diff := cmp.Diff(map[string]string{"host": want}, published.Data); diff != "" {
		t.Errorf("the config map (-want +got):\n%s", diff)
	}
}

func acceptsLater(t *testing.T, config *rest.Config) {
	c := newClient(t, config)
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": map[string]any{"name": "databases"},
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": "root:provider", "name": "databases"}}},
	}}
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	apply(t, config, "database.yaml")
	expectPhase(t, c, "Waiting")
	accept := `{"spec":{"permissionClaims":[{"resource":"configmaps","verbs":["get","list","watch","create","update"],"selector":{"matchAll":true},"state":"Accepted"}]}}`
	if err := c.Patch(t.Context(), binding, client.RawPatch(types.MergePatchType, []byte(accept))); err != nil {
		t.Fatal(err)
	}
	expectPhase(t, c, "Ready")
}

func comesBack(t *testing.T, config *rest.Config) {
	c := newClient(t, config)
	binding := &unstructured.Unstructured{}
	binding.SetAPIVersion("apis.kcp.io/v1alpha2")
	binding.SetKind("APIBinding")
	binding.SetName("databases")
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the binding is gone", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the binding: %v", err)
	})
	apply(t, config, "binding.yaml")
	expectDatabase(t, config)
}

func cleansUp(t *testing.T, config *rest.Config) {
	c := newClient(t, config)
	database, err := get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "database and config map are gone", func(ctx context.Context) error {
		if _, err := get(ctx, c); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the database: %v", err)
		}
		err := c.Get(ctx, types.NamespacedName{Namespace: "default", Name: "orders-database"}, &corev1.ConfigMap{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the config map: %v", err)
		}
		return nil
	})
}
