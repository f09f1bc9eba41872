package backendtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// tenant is a workspace that has bound the export.
type tenant struct {
	run       *run
	workspace Workspace
	cluster   logicalcluster.Name
	dynamic   dynamic.Interface
	version   string
}

// newTenant creates a workspace, binds the export, and accepts its claims.
func (r *run) newTenant(t testing.TB) *tenant {
	t.Helper()
	tenant := &tenant{run: r, workspace: r.suite.Environment.NewTenant(t), version: "v1alpha1"}
	tenant.workspace.Config = rest.CopyConfig(tenant.workspace.Config)
	tenant.workspace.Config.WarningHandler = rest.NoWarnings{} // the suite deprecates versions on purpose
	dynamicClient, err := dynamic.NewForConfig(tenant.workspace.Config)
	if err != nil {
		t.Fatal(err)
	}
	tenant.dynamic = dynamicClient
	c, err := client.New(tenant.workspace.Config, client.Options{Scheme: newScheme(r.group)})
	if err != nil {
		t.Fatal(err)
	}
	tenant.cluster = r.clusterOf(t, c)
	export := &apisv1alpha2.APIExport{}
	if err := r.c.Get(t.Context(), client.ObjectKey{Name: r.export}, export); err != nil {
		t.Fatal(err)
	}
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "infrastructure"}}
	binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: r.clusterOf(t, r.c).String(), Name: r.export}
	for _, claim := range export.Spec.PermissionClaims {
		accepted := apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: claim, State: apisv1alpha2.ClaimAccepted}
		accepted.Selector.MatchAll = true
		binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, accepted)
	}
	r.eventually(t, "binding the export", func(ctx context.Context) error {
		if err := c.Create(ctx, binding.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		bound := &apisv1alpha2.APIBinding{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(binding), bound); err != nil {
			return err
		}
		if bound.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("the phase is %q, conditions are %+v", bound.Status.Phase, bound.Status.Conditions)
		}
		return nil
	})
	return tenant
}

// at returns the tenant with a client for another version of the kind.
func (t *tenant) at(version string) *tenant {
	other := *t
	other.version = version
	return &other
}

func (t *tenant) instances() dynamic.ResourceInterface {
	return t.dynamic.Resource(schema.GroupVersionResource{Group: t.run.group, Version: t.version, Resource: "samples"})
}

func (r *run) newInstance(name, size string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.group + "/v1alpha1", "kind": "Sample", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": size},
	}}
}

func (t *tenant) create(ctx context.Context, object *unstructured.Unstructured) error {
	_, err := t.instances().Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier request succeeded without a response
	}
	return err
}

// order creates an instance, which is deleted with the test. It retries, because the workspace may not serve the kind yet.
func (t *tenant) order(tb testing.TB, name, size string) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() { // for later tests
			_ = t.instances().Delete(context.Background(), name, metav1.DeleteOptions{})
			t.waitGone(tb, name)
		}
	})
	t.run.eventually(tb, "creating "+name, func(ctx context.Context) error { return t.create(ctx, t.run.newInstance(name, size)) })
}

// provision creates an instance, and waits until it is ready.
func (t *tenant) provision(tb testing.TB, name, size string) *unstructured.Unstructured {
	tb.Helper()
	t.order(tb, name, size)
	return t.waitSize(tb, name, size)
}

func (t *tenant) patch(ctx context.Context, name, patch string) (*unstructured.Unstructured, error) {
	return t.instances().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
}

// wait waits until the status of an instance fulfils a condition, and returns the instance.
func (t *tenant) wait(tb testing.TB, name, what string, condition func(status map[string]any) bool) *unstructured.Unstructured {
	tb.Helper()
	var got *unstructured.Unstructured
	t.run.eventually(tb, fmt.Sprintf("%s of %s %s", name, t.cluster, what), func(ctx context.Context) (err error) {
		if got, err = t.instances().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		status, _, _ := unstructured.NestedMap(got.Object, "status")
		if !condition(status) {
			return fmt.Errorf("the status is %v, the generation %d", status, got.GetGeneration())
		}
		if generation, _, _ := unstructured.NestedInt64(status, "observedGeneration"); generation != got.GetGeneration() && got.GetDeletionTimestamp() == nil {
			return fmt.Errorf("generation %d was not observed: %v", got.GetGeneration(), status)
		}
		return nil
	})
	return got
}

func (t *tenant) waitPhase(tb testing.TB, name string, phase infrastructurev1alpha1.InstancePhase) *unstructured.Unstructured {
	tb.Helper()
	return t.wait(tb, name, "is "+string(phase), func(status map[string]any) bool { return status["phase"] == string(phase) })
}

// waitSize waits until an instance is ready with a size.
func (t *tenant) waitSize(tb testing.TB, name, size string) *unstructured.Unstructured {
	tb.Helper()
	return t.wait(tb, name, "is ready with size "+size, func(status map[string]any) bool {
		return status["phase"] == string(infrastructurev1alpha1.PhaseReady) && status["size"] == size
	})
}

// delete deletes an instance, and waits until it is gone.
func (t *tenant) delete(tb testing.TB, name string) {
	tb.Helper()
	t.remove(tb, name)
	t.waitGone(tb, name)
}

// remove deletes an instance without waiting.
func (t *tenant) remove(tb testing.TB, name string) {
	tb.Helper()
	if err := t.instances().Delete(tb.Context(), name, metav1.DeleteOptions{}); err != nil {
		tb.Fatalf("deleting %s: %v", name, err)
	}
}

func (t *tenant) waitGone(tb testing.TB, name string) {
	tb.Helper()
	t.run.eventually(tb, name+" is gone", func(ctx context.Context) error {
		object, err := t.instances().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it has finalizers %v, status %v", object.GetFinalizers(), object.Object["status"])
		}
		return client.IgnoreNotFound(err)
	})
}

// list returns the names of the objects of a tenant in the backend.
func (t *tenant) list(tb testing.TB) []string {
	tb.Helper()
	names, err := t.run.suite.Made.List(tb.Context(), t.cluster)
	if err != nil {
		tb.Fatal(err)
	}
	return names
}

// isEmpty returns an error unless the backend has no objects of a tenant.
func (t *tenant) isEmpty(ctx context.Context) error {
	names, err := t.run.suite.Made.List(ctx, t.cluster)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("of tenant %s there is %v", t.cluster, names)
	}
	return err
}

// waitMade waits until the objects of an instance have a size.
func (t *tenant) waitMade(tb testing.TB, name, size string) {
	tb.Helper()
	t.run.eventually(tb, fmt.Sprintf("what %s is made of has size %s", name, size), func(ctx context.Context) error {
		got, err := t.run.suite.Made.Size(ctx, t.cluster, name)
		if err == nil && got != size {
			err = errors.New("it has " + got)
		}
		return err
	})
}
