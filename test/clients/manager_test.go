package clients

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const gardenFinalizer = "example.org/gardener"

var gardenKind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Garden"}

func newGarden(namespace, name string, beds int64) *unstructured.Unstructured {
	g := &unstructured.Unstructured{}
	g.SetGroupVersionKind(gardenKind)
	g.SetNamespace(namespace)
	g.SetName(name)
	if beds > 0 {
		g.Object["spec"] = map[string]any{"beds": beds}
	}
	return g
}

// gardenReconciler keeps a config map per bed, reports them in the status, and cleans up under a finalizer.
type gardenReconciler struct{ client.Client }

func (r *gardenReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := newGarden("", "", 0)
	if err := r.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !g.GetDeletionTimestamp().IsZero() {
		farewell := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.GetNamespace(), Name: g.GetName() + "-farewell"}}
		if err := r.Create(ctx, farewell); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(g, gardenFinalizer)
		return ctrl.Result{}, r.Update(ctx, g)
	}
	if controllerutil.AddFinalizer(g, gardenFinalizer) {
		if err := r.Update(ctx, g); err != nil {
			return ctrl.Result{}, err
		}
	}
	beds, _, err := unstructured.NestedInt64(g.Object, "spec", "beds")
	if err != nil {
		return ctrl.Result{}, err
	}
	for i := range beds {
		bed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.GetNamespace(), Name: fmt.Sprintf("%s-bed-%d", g.GetName(), i)}}
		if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, bed, func() error {
			bed.Data = map[string]string{"flower": "rose"}
			return controllerutil.SetControllerReference(g, bed, r.Scheme())
		}); err != nil {
			return ctrl.Result{}, err
		}
	}
	if planted, _, _ := unstructured.NestedInt64(g.Object, "status", "planted"); planted == beds {
		return ctrl.Result{}, nil
	}
	if err := unstructured.SetNestedField(g.Object, beds, "status", "planted"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Update(ctx, g)
}

// testManager runs a manager as a kubebuilder project does: cache, leader election, owned objects, finalizers.
func testManager(t *testing.T, i *installation.Installation) {
	config := i.NewWorkspace(t, "gardens", "gardener")
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{filepath.Join("testdata", "crds")}, ErrorIfPathMissing: true}); err != nil {
		t.Fatalf("installing the definition: %v", err)
	}
	c := runManager(t, config)
	ctx := t.Context()

	if err := c.Create(ctx, newGarden("default", "kitchen", 3)); err != nil {
		t.Fatal(err)
	}
	expectBeds := func(name string, want int64) {
		t.Helper()
		shardtesting.Eventually(t, fmt.Sprintf("%s has %d beds", name, want), func(ctx context.Context) error {
			g := newGarden("", "", 0)
			if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, g); err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedInt64(g.Object, "status", "planted"); got != want {
				return fmt.Errorf("%d beds are planted", got)
			}
			return nil
		})
	}
	expectBeds("kitchen", 3)

	// Owned objects are restored after another client deletes or changes them.
	bed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kitchen-bed-1"}}
	if err := c.Delete(ctx, bed); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the deleted config map is restored", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKeyFromObject(bed), bed)
	})

	// The default of the definition applies.
	if err := c.Create(ctx, newGarden("default", "balcony", 0)); err != nil {
		t.Fatal(err)
	}
	expectBeds("balcony", 1)

	// The finalizer runs, then the garbage collector deletes the beds.
	if err := c.Delete(ctx, newGarden("default", "kitchen", 0)); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the finalizer ran, and garden and beds are deleted", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "kitchen-farewell"}, &corev1.ConfigMap{}); err != nil {
			return err
		}
		for _, object := range []client.Object{newGarden("default", "kitchen", 0), bed} {
			if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: object.GetName()}, object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s still exists: %v", object.GetName(), err)
			}
		}
		return nil
	})
}

// runManager starts the manager, waits until it leads, and returns a client that reads from the server. The manager
// stops with the test and releases its lease.
func runManager(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: "gardener", LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(mgr).For(newGarden("", "", 0)).Owns(&corev1.ConfigMap{}).Complete(&gardenReconciler{mgr.GetClient()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
	select {
	case <-mgr.Elected():
	case err := <-ended:
		ended <- err
		t.Fatalf("the manager ended before it led: %v", err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
