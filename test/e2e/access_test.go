//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

const (
	janesGroup  = "testers"
	janesSecret = "jane-kubeconfig"
)

// testAccess gives Jane a kubeconfig without permissions, then access to a, then a role there, and checks at each
// step that she has no other access.
func (in *installation) testAccess(t *testing.T) {
	a, b := in.data.a, in.data.b
	in.createJane(t)
	jane := in.kubeconfig(t, janesSecret)
	secrets := "/api/v1/namespaces/" + sharedNamespace + "/secrets"
	configMaps := "/api/v1/namespaces/" + sharedNamespace + "/configmaps"

	// Every user with a certificate may access root, and read its workspaces and workspace types.
	if err := get(t.Context(), jane, "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspacetypes"); err != nil {
		t.Errorf("workspace types of root: %v", err)
	}
	for _, path := range []string{"/clusters/root" + secrets, "/clusters/root/api/v1/namespaces", "/clusters/" + a.path + "/api", "/clusters/" + a.cluster + configMaps, "/clusters/" + a.path + configMaps, "/clusters/" + b.path + "/openapi/v3"} {
		if err := get(t.Context(), jane, path); !apierrors.IsForbidden(err) {
			t.Errorf("GET %s without access: want 403, got %v", path, err)
		}
	}

	a.grant(t, "enter", rbacv1.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}})
	eventually(t, 30*time.Second, "Jane's access to "+a.path, func(ctx context.Context) error {
		return get(ctx, jane, "/clusters/"+a.path+"/api")
	})
	if err := get(t.Context(), jane, "/clusters/"+a.path+configMaps); !apierrors.IsForbidden(err) {
		t.Errorf("config maps with access and no role: want 403, got %v", err)
	}

	a.grant(t, "read-config-maps", rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	eventually(t, 30*time.Second, "Jane's role in "+a.path, func(ctx context.Context) error {
		return get(ctx, jane, "/clusters/"+a.path+configMaps)
	})
	janeInA := newClient(t, workspaceConfig(jane, a.path))
	if err := janeInA.Create(t.Context(), a.object("janes-0")); !apierrors.IsForbidden(err) {
		t.Errorf("Jane creates a config map with a role to read them: want 403, got %v", err)
	}
	for _, path := range []string{"/clusters/" + a.path + secrets, "/clusters/" + b.path + configMaps, "/clusters/" + b.path + "/api", "/clusters/" + in.data.org.path + "/api"} {
		if err := get(t.Context(), jane, path); !apierrors.IsForbidden(err) {
			t.Errorf("GET %s with a role in another workspace: want 403, got %v", path, err)
		}
	}

	if err := a.client.Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "enter"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the end of Jane's access to "+a.path, func(ctx context.Context) error {
		if err := get(ctx, jane, "/clusters/"+a.path+configMaps); !apierrors.IsForbidden(err) {
			return fmt.Errorf("want 403, got %v", err)
		}
		return nil
	})
}

func (in *installation) createJane(t *testing.T) {
	t.Helper()
	kubeconfig := &operatorv1alpha1.Kubeconfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: "jane"},
		Spec: operatorv1alpha1.KubeconfigSpec{
			Username:  "jane",
			Groups:    []string{janesGroup},
			Validity:  metav1.Duration{Duration: 24 * time.Hour},
			SecretRef: corev1.LocalObjectReference{Name: janesSecret},
			Target:    operatorv1alpha1.KubeconfigTarget{FrontProxyRef: &corev1.LocalObjectReference{Name: "frontproxy"}},
		},
	}
	if err := in.host.Create(t.Context(), kubeconfig); err != nil {
		t.Fatalf("create Kubeconfig jane: %v", err)
	}
	eventually(t, 5*time.Minute, "Jane's kubeconfig", in.allReady)
}

// grant binds a cluster role of one rule to Jane's group in this workspace.
func (w workspace) grant(t *testing.T, name string, rule rbacv1.PolicyRule) {
	t.Helper()
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: janesGroup}},
		},
	} {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s in %s: %v", object, name, w.path, err)
		}
	}
}
