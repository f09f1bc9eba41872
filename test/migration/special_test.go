package migration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// testMounts moves a workspace in which another server is mounted. The mount keeps its URL and is served, and the shard that has got it
// follows the mounted object.
func (e *env) testMounts(t *testing.T) {
	pair, err := e.Layout().ServerCertificate("mounted")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = fmt.Fprint(w, "mounted ", req.URL.Path) }))
	backend.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	backend.StartTLS()
	t.Cleanup(backend.Close)
	workspace, c := e.workspace(t, "mounting", installation.Alpha)
	plain := e.definePlain(t, c, workspace.Spec.Cluster)
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(plain.GroupVersion().WithKind(plain.kind))
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "plain"}
	setPhase := func(phase string) {
		t.Helper()
		object.SetNamespace(key.Namespace)
		object.SetName(key.Name)
		patch := fmt.Appendf(nil, `{"status":{"phase":%q,"URL":%q}}`, phase, backend.URL)
		if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	setPhase("Ready")
	mount := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "mount"},
		Spec: tenancyv1alpha1.WorkspaceSpec{Mount: &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{
			APIVersion: plain.GroupVersion().String(), Kind: plain.kind, Namespace: key.Namespace, Name: key.Name,
		}}},
	}
	if err := c.Create(t.Context(), mount); err != nil {
		t.Fatal(err)
	}
	isServed := func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(mount), mount); err != nil {
			return err
		}
		if mount.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || mount.Spec.URL != backend.URL {
			return fmt.Errorf("the mount is in phase %s with the URL %s", mount.Status.Phase, mount.Spec.URL)
		}
		clientset, err := kubernetes.NewForConfig(e.Admin(t, "root:mounting:mount"))
		if err != nil {
			return err
		}
		text, err := clientset.RESTClient().Get().AbsPath("/healthz").MaxRetries(0).DoRaw(ctx)
		if err == nil && string(text) != "mounted /healthz" {
			err = fmt.Errorf("the mounted server answers %q", text)
		}
		return err
	}
	shardtesting.Eventually(t, "the mounted server", isServed)
	e.moveTo(t, "mounting", workspace, c, installation.Beta)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(mount), mount); err != nil || mount.Spec.URL != backend.URL {
		t.Errorf("the mount has the URL %q right after the move (%v)", mount.Spec.URL, err)
	}
	shardtesting.Eventually(t, "the mounted server after the move", isServed)
	setPhase("Gone")
	shardtesting.Eventually(t, "the end of the mount", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(mount), mount); err != nil {
			return err
		}
		if mount.Status.Phase != corev1alpha1.LogicalClusterPhaseUnavailable {
			return fmt.Errorf("the mount is in phase %s", mount.Status.Phase)
		}
		return nil
	})
	e.deleteWorkspace(t, workspace)
}

// testHome begins to move a home workspace, which is refused with the reason, and stays usable.
func (e *env) testHome(t *testing.T) {
	user, err := client.New(e.User(t, "root", "homely"), client.Options{Scheme: loopback.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	home := &tenancyv1alpha1.Workspace{}
	shardtesting.Eventually(t, "the home workspace", func(ctx context.Context) error { return user.Get(ctx, client.ObjectKey{Name: "~"}, home) })
	e.move(t, "homely", home.Spec.Cluster, installation.Beta)
	migration := e.waitPhase(t, "homely", migrationv1alpha1.LogicalClusterMigrationPhaseFailed)
	reason, message := conditionsv1alpha1.GetReason(migration, migrationv1alpha1.OriginReady), conditionsv1alpha1.GetMessage(migration, migrationv1alpha1.OriginReady)
	if reason != migrationv1alpha1.ReasonLogicalClusterNotMovable || !strings.Contains(message, "has no Workspace") {
		t.Errorf("%s: %s", reason, message)
	}
	inside, err := client.New(e.User(t, home.Spec.Cluster, "homely"), client.Options{Scheme: loopback.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	put(t, inside, "stays")
}
