//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

const (
	fieldOwner  = client.FieldOwner("e2e")
	adminSecret = "admin-kubeconfig" // of config/samples
)

// installation is shared by the steps of TestInstallation.
type installation struct {
	namespace string           // of the installation alone, which creates and removes it
	config    *rest.Config     // of the host cluster
	host      client.WithWatch // of the host cluster
	route     route
	// closers end the port-forwards, which outlive the steps that open them.
	closers []func()
	folder  string                                       // of the manifests
	mutate  func(*testing.T, *unstructured.Unstructured) // applied to each of them; may be nil
	// Of the front proxy, without a workspace in its URL; set by testInstall.
	admin *rest.Config
	data  workspaces // set by testWorkspaceCreation
	// consumers are workspaces by their shard; set by testRemoteConsumers.
	consumers map[string]workspace
}

// newInstallation removes the remains of an interrupted run, and registers the cleanup of this one. Tests that run side by side use
// different namespaces.
func newInstallation(t *testing.T, namespace, folder string) *installation {
	t.Helper()
	in := &installation{namespace: namespace, config: hostConfig(t), folder: folder}
	in.host = newClient(t, in.config)
	in.remove(t)
	in.route = findRoute(t, in.config, in.host)
	t.Cleanup(func() {
		if t.Failed() {
			in.dump(t)
		}
		if t.Failed() && os.Getenv("E2E_KEEP") != "" {
			t.Logf("E2E_KEEP is set: namespace %s is kept", in.namespace)
			return
		}
		in.remove(t)
	})
	t.Cleanup(func() {
		for _, end := range in.closers {
			end()
		}
	})
	return in
}

// remove deletes the namespace and waits for its deletion. It must work after t's context has ended.
func (in *installation) remove(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	// The operator needs its own objects to finalize a Kubeconfig with bindings, so these are deleted first.
	in.confirmDeletion(ctx, t)
	for _, kind := range []client.Object{
		&operatorv1alpha1.Kubeconfig{}, &operatorv1alpha1.FrontProxy{}, &operatorv1alpha1.VirtualWorkspace{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.RootShard{}, &operatorv1alpha1.CacheServer{},
	} {
		if err := in.host.DeleteAllOf(ctx, kind, client.InNamespace(in.namespace)); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete all %T: %v", kind, err)
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.namespace}}
	err := in.host.Delete(ctx, ns)
	for ticker := time.NewTicker(250 * time.Millisecond); err == nil; err = in.host.Get(ctx, client.ObjectKeyFromObject(ns), ns) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Errorf("namespace %s is not deleted after 3 minutes: %v", in.namespace, ns.Status.Conditions)
			return
		}
	}
	if !apierrors.IsNotFound(err) {
		t.Errorf("delete namespace %s: %v", in.namespace, err)
	}
}

// manifests returns those of a directory of config, in the namespace of these tests and with an external address that
// reaches the front proxy from this host and from the pods.
func (in *installation) manifests(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/"+in.folder)
	if err != nil {
		t.Fatalf("kustomize build config/%s: %v", in.folder, err)
	}
	var out []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(resource.MustYaml()), &u.Object); err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "Namespace":
			u.SetName(in.namespace)
		case "RootShard":
			external := map[string]any{"hostname": in.route.host, "port": int64(in.route.port)}
			if in.route.clusterIP == "" {
				external["privateHostname"] = "frontproxy-front-proxy." + in.namespace + ".svc.cluster.local"
			}
			set(t, u, external, "spec", "external")
		case "FrontProxy":
			addresses := []any{"127.0.0.1"}
			if in.route.clusterIP != "" {
				set(t, u, in.route.clusterIP, "spec", "serviceTemplate", "spec", "clusterIP")
				addresses = append(addresses, in.route.clusterIP)
			}
			set(t, u, addresses, "spec", "certificateTemplates", "server", "spec", "ipAddresses")
		}
		if u.GetKind() != "Namespace" {
			u.SetNamespace(in.namespace)
		}
		if in.mutate != nil {
			in.mutate(t, u)
		}
		out = append(out, u)
	}
	return out
}

func set(t *testing.T, u *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		t.Fatalf("%s %s: %v", u.GetKind(), strings.Join(path, "."), err)
	}
}

// apply applies objects server-side, in order, and returns them as stored.
func (in *installation) apply(t *testing.T, objects ...*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, u := range objects {
		u = u.DeepCopy()
		if err := in.host.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
		}
		out = append(out, u)
	}
	return out
}

// testInstall applies the manifests, waits, and sends a request through the front proxy as the administrator.
func (in *installation) testInstall(t *testing.T) {
	started := time.Now()
	in.apply(t, in.manifests(t)...)
	eventually(t, 8*time.Minute, "readiness of all objects", in.allReady)
	t.Logf("%.1fs from apply to Ready", time.Since(started).Seconds())
	in.openFrontProxy(t)
	in.admin = in.kubeconfig(t, adminSecret)
	// The kubeconfig may exist before the last pod of the front proxy is an endpoint of its Service.
	eventually(t, time.Minute, "a response of the front proxy", func(ctx context.Context) error {
		return get(ctx, in.admin, "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces")
	})
	t.Logf("%.1fs from apply to a working kubeconfig", time.Since(started).Seconds())
}

// allReady returns nil when every custom resource of the namespace is Ready at its current generation.
func (in *installation) allReady(ctx context.Context) error {
	var missing []error
	for _, kind := range []string{"RootShard", "CacheServer", "Shard", "VirtualWorkspace", "FrontProxy", "Kubeconfig"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := in.host.List(ctx, list, client.InNamespace(in.namespace)); err != nil {
			return err
		}
		if len(list.Items) == 0 && (kind == "RootShard" || kind == "FrontProxy" || kind == "Kubeconfig") {
			return fmt.Errorf("there is no %s", kind)
		}
		for i := range list.Items {
			missing = append(missing, checkReady(&list.Items[i]))
		}
	}
	return errors.Join(missing...)
}

func checkReady(u *unstructured.Unstructured) error {
	c := condition(u, operatorv1alpha1.ConditionReady)
	if c == nil {
		return fmt.Errorf("%s %s has no condition Ready", u.GetKind(), u.GetName())
	}
	if c.Status != metav1.ConditionTrue || c.ObservedGeneration != u.GetGeneration() {
		return fmt.Errorf("%s %s: Ready=%s (generation %d of %d), %s: %s", u.GetKind(), u.GetName(), c.Status, c.ObservedGeneration, u.GetGeneration(), c.Reason, c.Message)
	}
	return nil
}

func condition(u *unstructured.Unstructured, kind string) *metav1.Condition {
	raw, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, entry := range raw {
		body, err := yaml.Marshal(entry)
		if err != nil {
			continue
		}
		c := &metav1.Condition{}
		if yaml.Unmarshal(body, c) == nil && c.Type == kind {
			return c
		}
	}
	return nil
}

// kubeconfig reads a generated kubeconfig. Its contexts are a workspace ("default") and the server ("base"); it returns
// the latter, because the steps use many workspaces.
func (in *installation) kubeconfig(t *testing.T, secretName string) *rest.Config {
	t.Helper()
	raw := in.kubeconfigFile(t, secretName)
	loaded, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatalf("Secret %s: %v", secretName, err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*loaded, "base", nil, nil).ClientConfig()
	if err != nil {
		t.Fatalf("Secret %s: %v", secretName, err)
	}
	config.QPS, config.Burst = 100, 200
	return config
}

func (in *installation) kubeconfigFile(t *testing.T, secretName string) []byte {
	t.Helper()
	secret := &corev1.Secret{}
	if err := in.host.Get(t.Context(), client.ObjectKey{Namespace: in.namespace, Name: secretName}, secret); err != nil {
		t.Fatalf("kubeconfig of Secret %s: %v", secretName, err)
	}
	return secret.Data["kubeconfig"]
}

// workspaceConfig returns the configuration for one workspace, by path or by logical cluster name.
func workspaceConfig(config *rest.Config, path string) *rest.Config {
	out := rest.CopyConfig(config)
	out.Host = strings.TrimSuffix(out.Host, "/") + "/clusters/" + path
	return out
}

// get requests a path and returns the error of the response, with its status.
func get(ctx context.Context, config *rest.Config, path string) error {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return err
	}
	return c.Get().AbsPath(path).Do(ctx).Error()
}
