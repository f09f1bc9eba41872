//go:build gitops

package gitops

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// workspace is the client configuration of a Kubeconfig, for its workspace.
func (e *environment) workspace(t *testing.T, secretName string) *rest.Config {
	t.Helper()
	secret := &corev1.Secret{}
	if err := e.host.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: secretName}, secret); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// asAdmin is a client for a workspace below root with the rights of an administrator.
func (e *environment) asAdmin(t *testing.T, name string) client.Client {
	t.Helper()
	config := e.workspace(t, "admin-kubeconfig")
	config.Host += ":" + name
	return newClient(t, config)
}

// createWorkspaceRole creates the role of config/gitops in a workspace below root.
func (e *environment) createWorkspaceRole(t *testing.T, name string) {
	t.Helper()
	manifest, err := os.ReadFile("../../config/gitops/workspace-role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(manifest, role); err != nil {
		t.Fatal(err)
	}
	admin := e.asAdmin(t, name)
	eventually(t, time.Minute, "the front proxy knows workspace "+name, func(ctx context.Context) error { return admin.Create(ctx, role.DeepCopy()) })
}

// object identifies an object of a kind that the scheme does not have.
func object(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

// newWidget identifies an object of the API that is bound in root:team.
func newWidget(name string) *unstructured.Unstructured {
	return object("example.com/v1", "Widget", name)
}

// expectGone reports objects that are still there.
func expectGone(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			t.Errorf("%T %s is still there (%v)", object, object.GetName(), err)
		}
	}
}
