package syncagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/kdp/services"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/installation"
)

// TestServiceOfTheOlderDialect starts with a Service of an organisation and ends with a Secret of a consumer: the agent has only the
// credentials of the Service, and publishes in its API group.
func TestServiceOfTheOlderDialect(t *testing.T) {
	t.Parallel()
	organisation := newEnv(t)
	offer := *organisation // with the export of the Service
	offer.Name = organisation.Name + "-offer"
	group := organisation.Name + ".example.corp"
	kind := organisation.Define(t, "Widget")
	organisation.define(t, definitionOf(t, "services.kdp.k8c.io_publishedresources.yaml"))
	kubeconfig := offer.offerService(t, group)

	published := &servicesv1alpha1.PublishedResource{}
	decode(t, published, fmt.Sprintf(`
metadata: {name: %[1]s, labels: {agent: %[1]s}}
spec:
  resource: {apiGroup: %[2]s, version: v1, kind: Widget}
  filter: {namespace: default}
  projection: {kind: Gadget, plural: Gadgets}
  related:
  - {origin: service, kind: Secret, reference: {name: {path: spec.secretName}}}
`, offer.Name, kind.Group))
	create(t, organisation.Service, published)
	t.Cleanup(func() { _ = organisation.Service.Delete(context.Background(), published) })
	offer.Agent(t, func(o *options.Options) { o.KcpKubeconfig, o.EndpointSlice = kubeconfig, offer.Name })

	c := offer.Consumer(t, installation.Alpha)
	gadget := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gadget"}
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	filtered := newObject(gadget, "other", "one", map[string]any{})
	c.New(t, filtered)
	object := newObject(gadget, "default", "one", map[string]any{"secretName": "credentials"})
	c.New(t, object)
	expectKey(t, offer.Copy(t, kind, c, object), c.Cluster, expression.ShortHash("default")+"-"+expression.ShortHash("one"))

	create(t, organisation.Service, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Cluster, Name: "credentials"}, Data: map[string][]byte{"password": []byte("secret")},
	})
	patch(t, c, object, `{"spec":{"touched":true}}`) // the dialect has no watch of related objects
	shardtesting.Eventually(t, "the Secret is in the workspace", func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "credentials"}, secret); err != nil {
			return err
		}
		if string(secret.Data["password"]) != "secret" {
			return fmt.Errorf("its data is %v", secret.Data)
		}
		return nil
	})
	if copies, err := offer.Copies(t.Context(), kind, c, filtered); err != nil || len(copies) > 0 {
		t.Errorf("an object of another namespace has %d copies (%v)", len(copies), err)
	}
}

// offerService runs the controller of Services in the provider's workspace, creates a Service, and returns the file with the
// kubeconfig of its agent.
func (e *env) offerService(t *testing.T, group string) string {
	t.Helper()
	directory := t.TempDir()
	o := services.NewOptions()
	o.Kubeconfig, o.MetricsAddress = filepath.Join(directory, "organisation.kubeconfig"), "0"
	installation.WriteKubeconfig(t, e.Provider, o.Kubeconfig)
	config, server, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	withServices := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(withServices), apiextensionsv1.AddToScheme(withServices), kdpcorev1alpha1.AddToScheme(withServices)); err != nil {
		t.Fatal(err)
	}
	provider, err := client.New(e.Provider, client.Options{Scheme: withServices})
	if err != nil {
		t.Fatal(err)
	}
	create(t, provider, definitionOf(t, "core.kdp.k8c.io_services.yaml"))
	create(t, provider, &kdpcorev1alpha1.Service{ObjectMeta: metav1.ObjectMeta{Name: e.Name}, Spec: kdpcorev1alpha1.ServiceSpec{APIGroup: group}})

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- services.Run(ctx, config, server, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the controller of Services ended with %v", err)
		}
	})
	file := filepath.Join(directory, "agent.kubeconfig")
	shardtesting.Eventually(t, "the kubeconfig of the agent", func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := provider.Get(ctx, client.ObjectKey{Namespace: "default", Name: e.Name + "-kubeconfig"}, secret); err != nil {
			return err
		}
		return os.WriteFile(file, secret.Data["kubeconfig"], 0o600)
	})
	return file
}

// definitionOf reads a definition of the older dialect.
func definitionOf(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "sync-agent", "kdp", file))
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	decode(t, definition, string(content))
	return definition
}

func decode(t *testing.T, object any, manifest string) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(manifest), object); err != nil {
		t.Fatal(err)
	}
}
