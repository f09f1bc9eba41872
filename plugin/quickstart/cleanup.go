package quickstart

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// deletionPollInterval is the interval of polls for the end of a workspace.
const deletionPollInterval = 500 * time.Millisecond

// cleanUp deletes the organization of the prefix, and with it everything below. It deletes only a workspace with the
// labels of a quickstart: one of another user may have the name.
func (s *setup) cleanUp(ctx context.Context) error {
	s.printf("Cleaning up quickstart resources with prefix %q...\n", s.prefix)
	client, err := s.installation.Resource(logicalcluster.Root.Path(), connection.Workspaces)
	if err != nil {
		return err
	}
	selector := labels.SelectorFromSet(s.labels()).String()
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("listing the workspaces in root: %w", err)
	}
	for i := range list.Items {
		name := list.Items[i].GetName()
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting workspace %q in root: %w", name, err)
		}
	}
	for i := range list.Items {
		name := list.Items[i].GetName()
		err := wait.PollUntilContextCancel(ctx, deletionPollInterval, true, func(ctx context.Context) (bool, error) {
			_, err := client.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
		if wait.Interrupted(err) {
			return fmt.Errorf("workspace %q is still being deleted after %s; it goes on without this command", name, s.timeout)
		}
		if err != nil {
			return fmt.Errorf("waiting for workspace %q in root to be gone: %w", name, err)
		}
		s.printf("  Workspace %q deleted\n", name)
	}
	s.printf("Cleanup complete.\n")
	return nil
}
