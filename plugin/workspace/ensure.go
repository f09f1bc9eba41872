package workspace

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// Request is a workspace that other commands need.
type Request struct {
	Parent logicalcluster.Path
	Name   string
	// Type is "path:name"; if it is empty, the server selects the default.
	Type   string
	Labels map[string]string
}

// Ensure creates the workspace unless it exists, and returns when it is ready and can be entered.
func Ensure(ctx context.Context, installation *connection.Installation, spec Request, timeout time.Duration) (existed bool, err error) {
	client, err := installation.Resource(spec.Parent, connection.Workspaces)
	if err != nil {
		return false, err
	}
	o := createOptions{name: spec.Name, workspaceType: spec.Type}
	object, err := o.object()
	if err != nil {
		return false, err
	}
	object.SetLabels(spec.Labels)
	created, err := client.Create(ctx, object, metav1.CreateOptions{})
	existed = apierrors.IsAlreadyExists(err)
	if existed {
		created = object
	} else if err != nil {
		return false, fmt.Errorf("creating workspace %q in %q: %w", spec.Name, spec.Parent, err)
	}
	if _, err := waitReady(ctx, client, created, timeout); err != nil {
		return existed, err
	}
	return existed, waitReachable(ctx, installation, spec.Parent.Join(spec.Name))
}

// waitReachable waits until a ready workspace can be entered.
func waitReachable(ctx context.Context, installation *connection.Installation, path logicalcluster.Path) error {
	err := wait.PollUntilContextTimeout(ctx, readyPollInterval, enterTimeout, true, func(context.Context) (bool, error) {
		return installation.IsReachable(path)
	})
	if wait.Interrupted(err) {
		return &noAccessError{path: path}
	}
	return err
}

// Enter makes a workspace the current one, as "kubectl ws" does.
func Enter(ctx context.Context, flags *connection.Flags, path logicalcluster.Path) error {
	n, err := newNavigator(flags, false)
	if err != nil {
		return err
	}
	installation, err := n.session.Installation()
	if err != nil {
		return err
	}
	return n.enter(ctx, installation, path, true)
}
