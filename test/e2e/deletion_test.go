//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// childKinds are the kinds of all objects that the operator creates on the host cluster.
var childKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "Pod"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"},
	{Group: "cert-manager.io", Version: "v1", Kind: "CertificateRequest"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"},
}

// testWorkspaceDeletion deletes root:e2e and all workspaces below it. Afterwards no key of the store contains the
// name of any of these logical clusters, in any position.
func (in *installation) testWorkspaceDeletion(t *testing.T) {
	store := in.etcdClient(t)
	clusters := []string{in.data.org.cluster, in.data.a.cluster, in.data.b.cluster}
	for _, cluster := range clusters {
		if keys := keysContaining(t, store, cluster); len(keys) == 0 {
			t.Fatalf("logical cluster %s has no keys before it is deleted: the key pattern of this test is wrong", cluster)
		}
	}
	root := newClient(t, workspaceConfig(in.admin, "root"))
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}}
	if err := root.Delete(t.Context(), ws); err != nil {
		t.Fatalf("delete workspace: %v", err)
	}
	eventually(t, 2*time.Minute, "deletion of workspace root:e2e", func(ctx context.Context) error {
		err := root.Get(ctx, client.ObjectKeyFromObject(ws), ws)
		if err == nil {
			return fmt.Errorf("phase %s, finalizers %v, conditions %v", ws.Status.Phase, ws.Finalizers, ws.Status.Conditions)
		}
		return client.IgnoreNotFound(err)
	})
	for _, cluster := range clusters {
		eventually(t, 30*time.Second, "no key of the deleted logical cluster "+cluster, func(context.Context) error { // the usage goes last
			if keys := keysContaining(t, store, cluster); len(keys) > 0 {
				return fmt.Errorf("%d keys remain: %v", len(keys), keys)
			}
			return nil
		})
	}
	for _, w := range []workspace{in.data.org, in.data.a} {
		eventually(t, 10*time.Second, "the front proxy's refusal of "+w.path, func(ctx context.Context) error {
			if err := get(ctx, in.admin, "/clusters/"+w.path+"/api"); !apierrors.IsForbidden(err) {
				return fmt.Errorf("want 403, got %v", err)
			}
			return nil
		})
	}
}

// etcdClient connects to the etcd that the operator runs, with the credentials of the shard.
func (in *installation) etcdClient(t *testing.T) *clientv3.Client {
	t.Helper()
	member := in.onePod(t, component("etcd"))
	credentials := &corev1.Secret{}
	if err := in.host.Get(t.Context(), client.ObjectKey{Namespace: in.namespace, Name: in.etcdClientSecret(t)}, credentials); err != nil {
		t.Fatalf("etcd's client certificate: %v", err)
	}
	pair, err := tls.X509KeyPair(credentials.Data["tls.crt"], credentials.Data["tls.key"])
	if err != nil {
		t.Fatalf("etcd's client certificate: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(credentials.Data["ca.crt"])
	store, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://" + in.podAddress(t, member, 2379)},
		DialTimeout: 10 * time.Second,
		Context:     t.Context(),
		TLS: &tls.Config{
			Certificates: []tls.Certificate{pair},
			// The certificate has the DNS names of Services, and this host connects to an IP address. Only its
			// signature by the CA is verified.
			InsecureSkipVerify: true,
			VerifyConnection: func(state tls.ConnectionState) error {
				intermediates := x509.NewCertPool()
				for _, cert := range state.PeerCertificates[1:] {
					intermediates.AddCert(cert)
				}
				_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
				return err
			},
		},
	})
	if err != nil {
		t.Fatalf("connect to etcd: %v", err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// etcdClientSecret returns the Secret that the shard's pods mount for etcd: the contract fixes the mount path.
func (in *installation) etcdClientSecret(t *testing.T) string {
	t.Helper()
	pod := in.onePod(t, component("rootshard"))
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if mount.MountPath != "/etc/etcd/tls" {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Name == mount.Name && volume.Secret != nil {
				return volume.Secret.SecretName
			}
		}
	}
	t.Fatalf("pod %s mounts no Secret at /etc/etcd/tls", pod.Name)
	return ""
}

// keysContaining lists all keys that have the name of a logical cluster as one of their segments.
func keysContaining(t *testing.T, store *clientv3.Client, cluster string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	all, err := store.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatalf("list the keys of etcd: %v", err)
	}
	var out []string
	for _, kv := range all.Kvs {
		if strings.Contains(string(kv.Key)+"/", "/"+cluster+"/") {
			out = append(out, string(kv.Key))
		}
	}
	return out
}

// testInstallationDeletion deletes the custom resources, root shard first, which is the hardest order, and waits until
// the namespace is empty.
func (in *installation) testInstallationDeletion(t *testing.T) {
	in.confirmDeletion(t.Context(), t)
	for _, kind := range []client.Object{
		&operatorv1alpha1.RootShard{}, &operatorv1alpha1.CacheServer{}, &operatorv1alpha1.Shard{}, &operatorv1alpha1.VirtualWorkspace{},
		&operatorv1alpha1.FrontProxy{}, &operatorv1alpha1.Kubeconfig{},
	} {
		if err := in.host.DeleteAllOf(t.Context(), kind, client.InNamespace(in.namespace)); err != nil {
			t.Fatalf("delete all %T: %v", kind, err)
		}
	}
	eventually(t, 2*time.Minute, "an empty namespace", func(ctx context.Context) error {
		if left := in.listCustomResources(t); len(left) > 0 {
			return fmt.Errorf("%s %s exists, finalizers %v", left[0].GetKind(), left[0].GetName(), left[0].GetFinalizers())
		}
		var left []string
		for _, kind := range childKinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := in.host.List(ctx, list, client.InNamespace(in.namespace)); err != nil {
				return fmt.Errorf("list %s: %w", kind.Kind, err)
			}
			for _, u := range list.Items {
				if name := u.GetKind() + "/" + u.GetName(); name != "ConfigMap/kube-root-ca.crt" && name != "ServiceAccount/default" {
					left = append(left, name)
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d objects remain: %s", len(left), strings.Join(left, " "))
		}
		return nil
	})
}
