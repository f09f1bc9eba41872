//go:build gitops

package gitops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/test/programs"
)

const fluxNamespace = "flux-system"

var (
	gitRepositoryKind = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
	kustomizationKind = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
)

// flux is a running Flux: its source and kustomize controllers.
type flux struct {
	*environment
}

// startFlux installs Flux's definitions and runs its controllers until the end of the test, which removes the namespace and the
// definitions.
func startFlux(t *testing.T, e *environment) *flux {
	t.Helper()
	objects := fluxObjects(t)
	for _, u := range objects {
		e.apply(t, u)
	}
	eventually(t, time.Minute, "Flux's definitions are served", func(context.Context) error {
		for _, u := range objects {
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			if kind == "" {
				continue // the namespace
			}
			if _, err := e.host.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind}, "v1"); err != nil {
				return err
			}
		}
		return nil
	})
	artifacts := programs.FreeAddress(t)
	e.startFluxProgram(t, "source-controller", "--storage-path="+t.TempDir(), "--storage-addr="+artifacts, "--storage-adv-addr="+artifacts)
	e.startFluxProgram(t, "kustomize-controller", "--requeue-dependency=5s")
	// This cleanup runs before the cleanup of the programs, which finalize the remaining objects.
	t.Cleanup(func() { e.deleteAll(t, objects) })
	return &flux{e}
}

// fluxObjects are Flux's definitions and its namespace.
func fluxObjects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	out := documents(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+fluxNamespace+"}}")
	for _, directory := range filepath.SplitList(os.Getenv(envFluxDefinitions)) {
		files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no definitions in %s (%v)", directory, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, documents(t, strings.TrimPrefix(string(content), "---\n"))...)
		}
	}
	return out
}

func (e *environment) startFluxProgram(t *testing.T, name string, args ...string) {
	t.Helper()
	directory, err := filepath.Abs(os.Getenv(envPrograms))
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	command := []string{
		"KUBECONFIG=" + e.kubeconfig, "RUNTIME_NAMESPACE=" + fluxNamespace, "HOME=" + temporary, "TMPDIR=" + temporary, filepath.Join(directory, name),
		"--metrics-addr=0", "--health-addr=" + programs.FreeAddress(t), "--log-level=info",
	}
	programs.StartAs(t, name, temporary, "/usr/bin/env", append(command, args...)...)
}

// documents parses the documents of a manifest.
func documents(t *testing.T, manifest string) (out []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		out = append(out, u)
	}
	return out
}

// apply creates or changes an object of the host cluster.
func (e *environment) apply(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if err := e.host.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("gitops"), client.ForceOwnership); err != nil {
		t.Fatalf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

// create applies the documents of a manifest; users run it once with kubectl.
func (f *flux) create(t *testing.T, manifest string) {
	t.Helper()
	for _, u := range documents(t, manifest) {
		f.apply(t, u)
	}
}

func (f *flux) get(ctx context.Context, kind schema.GroupVersionKind, in, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, f.host.Get(ctx, client.ObjectKey{Namespace: in, Name: name}, u)
}

// reconcile requests a controller to reconcile an object immediately, like a webhook of a git server or the command of Flux.
func (f *flux) reconcile(t *testing.T, kind schema.GroupVersionKind, in, name string) (requested string) {
	t.Helper()
	u, err := f.get(t.Context(), kind, in, name)
	if err != nil {
		t.Fatal(err)
	}
	requested = time.Now().Format(time.RFC3339Nano)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"`+requested+`"}}}`))
	if err := f.host.Patch(t.Context(), u, patch); err != nil {
		t.Fatal(err)
	}
	return requested
}

// pull requests Flux to read the repository.
func (f *flux) pull(t *testing.T) {
	t.Helper()
	f.reconcile(t, gitRepositoryKind, fluxNamespace, "platform")
}

// fluxState is the state of a Kustomization.
type fluxState struct {
	applied, attempted, handled string
	ready                       *metav1.Condition
	reconciling                 bool
}

func stateOf(u *unstructured.Unstructured) fluxState {
	var s fluxState
	s.applied, _, _ = unstructured.NestedString(u.Object, "status", "lastAppliedRevision")
	s.attempted, _, _ = unstructured.NestedString(u.Object, "status", "lastAttemptedRevision")
	s.handled, _, _ = unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
	s.ready = conditionOf(u, "Ready")
	if c := conditionOf(u, "Reconciling"); c != nil {
		s.reconciling = c.Status == metav1.ConditionTrue
	}
	return s
}

func (s fluxState) String() string {
	if s.ready == nil {
		return "no condition Ready"
	}
	return fmt.Sprintf("Ready=%s at %s: %s: %s", s.ready.Status, s.applied, s.ready.Reason, s.ready.Message)
}

// isReady reports whether a revision is applied and everything in it is current.
func (s fluxState) isReady(revision string) bool {
	return s.ready != nil && s.ready.Status == metav1.ConditionTrue && strings.HasSuffix(s.applied, ":"+revision)
}

// hasFailed reports whether Flux has given up on a revision.
func (s fluxState) hasFailed(revision string) bool {
	return s.ready != nil && s.ready.Status == metav1.ConditionFalse && s.ready.Reason != "DependencyNotReady" && strings.HasSuffix(s.attempted, ":"+revision)
}

// await waits until the state of a Kustomization is as wanted, and returns it, and whether the Kustomization was Reconciling before.
func (f *flux) await(t *testing.T, limit time.Duration, in, name, what string, wanted func(fluxState) bool) (state fluxState, reconciled bool) {
	t.Helper()
	eventually(t, limit, "Kustomization "+name+" "+what, func(ctx context.Context) error {
		u, err := f.get(ctx, kustomizationKind, in, name)
		if err != nil {
			return err
		}
		state = stateOf(u)
		reconciled = reconciled || state.reconciling
		if wanted(state) {
			return nil
		}
		return errors.New(state.String())
	})
	return state, reconciled
}

func (f *flux) awaitReady(t *testing.T, limit time.Duration, in, name, revision string) (reconciled bool) {
	t.Helper()
	_, reconciled = f.await(t, limit, in, name, "Ready", func(s fluxState) bool { return s.isReady(revision) })
	return reconciled
}

// remove deletes Kustomizations in order, and waits for each until the objects that it has applied are deleted.
func (f *flux) remove(t *testing.T, limit time.Duration, in string, names ...string) {
	t.Helper()
	for _, name := range names {
		u, err := f.get(t.Context(), kustomizationKind, in, name)
		if err == nil {
			err = f.host.Delete(t.Context(), u)
		}
		if err != nil {
			t.Fatalf("delete Kustomization %s: %v", name, err)
		}
		eventually(t, limit, "deletion of Kustomization "+name, func(ctx context.Context) error {
			u, err := f.get(ctx, kustomizationKind, in, name)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err == nil {
				return errors.New(stateOf(u).String())
			}
			return nil
		})
	}
}

func conditionOf(u *unstructured.Unstructured, kind string) *metav1.Condition {
	raw, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	i := slices.IndexFunc(raw, func(entry any) bool {
		c, _ := entry.(map[string]any)
		return c["type"] == kind
	})
	if i < 0 {
		return nil
	}
	c := &metav1.Condition{}
	if body, err := yaml.Marshal(raw[i]); err != nil || yaml.Unmarshal(body, c) != nil {
		return nil
	}
	return c
}
