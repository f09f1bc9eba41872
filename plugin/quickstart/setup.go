package quickstart

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// The labels of all workspaces that belong to a quickstart.
const (
	quickstartLabel = "kcp.io/quickstart"
	prefixLabel     = "kcp.io/quickstart-prefix"
)

// The types of workspaces that a quickstart needs.
const (
	organizationType = "root:organization"
	universalType    = "root:universal"
)

// setup is a running scenario.
type setup struct {
	*options
	installation *connection.Installation
	out          io.Writer
}

// step is one step of a scenario, and the line printed for it.
type step struct {
	text string
	do   func(context.Context) error
}

// run executes the scenario and returns the workspace that it ends in.
func (s *setup) run(ctx context.Context) (logicalcluster.Path, error) {
	s.printf("Setting up %q scenario with prefix %q...\n", s.scenario, s.prefix)
	steps, end, summary := s.providerSteps()
	if s.scenario == workspacesScenario {
		steps, end, summary = s.treeSteps()
	}
	for i, one := range steps {
		s.printf("Step %d/%d: %s...\n", i+1, len(steps), one.text)
		if err := one.do(ctx); err != nil {
			return end, err
		}
	}
	s.printf("Quickstart complete!\n\n%s", summary)
	return end, nil
}

func (s *setup) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *setup) organization() logicalcluster.Path {
	return logicalcluster.Root.Path().Join(s.prefix + "-org")
}

func (s *setup) labels() map[string]string {
	return map[string]string{quickstartLabel: "true", prefixLabel: s.prefix}
}

func (s *setup) organizationStep() step {
	return step{"Creating the organization", func(ctx context.Context) error {
		return s.createWorkspace(ctx, s.organization(), organizationType)
	}}
}

// createWorkspace creates a workspace unless it exists, and prints its path.
func (s *setup) createWorkspace(ctx context.Context, path logicalcluster.Path, workspaceType string) error {
	existed, err := s.ensureWorkspace(ctx, path, workspaceType)
	if err != nil {
		return err
	}
	what := "created and ready at"
	if existed {
		what = "already exists at"
	}
	s.printf("  Workspace %q %s %s\n", path.Base(), what, path)
	return nil
}

func (s *setup) ensureWorkspace(ctx context.Context, path logicalcluster.Path, workspaceType string) (existed bool, err error) {
	parent, _ := path.Parent()
	return workspace.Ensure(ctx, s.installation, workspace.Request{Parent: parent, Name: path.Base(), Type: workspaceType, Labels: s.labels()}, s.timeout)
}

// createObject creates an object unless it exists; an existing one is not changed. namespace is empty for cluster-scoped
// resources.
func (s *setup) createObject(ctx context.Context, path logicalcluster.Path, resource schema.GroupVersionResource, namespace string, object *unstructured.Unstructured) error {
	client, err := s.installation.Namespaced(path, resource, namespace)
	if err != nil {
		return err
	}
	what := "created in"
	_, err = client.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		what = "already exists in"
	} else if err != nil {
		return fmt.Errorf("creating %s %q in workspace %q: %w", object.GetKind(), object.GetName(), path, err)
	}
	s.printf("  %s %q %s %s\n", object.GetKind(), object.GetName(), what, path)
	return nil
}
