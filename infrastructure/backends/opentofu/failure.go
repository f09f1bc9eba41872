package opentofu

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

// reportFailure reports to the platform operator why a run failed.
func (b *Backend) reportFailure(ctx context.Context, set runtimecluster.Set, failed *run) error {
	details, err := b.failureDetails(ctx, set, failed)
	if err != nil {
		return err
	}
	return b.report(ctx, set, failed, "RunFailed", details)
}

// report reports the outcome of a run once to the platform operator: in the log, and as an event of the Job. Tenants do not see it.
func (b *Backend) report(ctx context.Context, set runtimecluster.Set, of *run, reason, details string) error {
	now := metav1.NewTime(time.Now())
	namespace := runtimecluster.Namespace(set.Tenant)
	event := &corev1.Event{
		// The name makes the event unique, although every reconciliation observes the run.
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%s", of.name, of.uid)},
		InvolvedObject: corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace, Name: of.name, UID: of.uid},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: details, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: runtimecluster.Owner},
	}
	err := b.Cluster.Client.Create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reporting a run: %w", err)
	}
	b.log.Info("A run needs attention", "reason", reason, "cluster", set.Tenant, "template", set.Template, "instance", set.Instance, "job", of.name,
		"operation", of.operation, "attempt", of.attempt, "details", details)
	return nil
}

// failureDetails returns the end of the log of a run, from the termination message of its pod.
func (b *Backend) failureDetails(ctx context.Context, set runtimecluster.Set, failed *run) (string, error) {
	var pods corev1.PodList
	if err := b.Cluster.Client.List(ctx, &pods, client.InNamespace(runtimecluster.Namespace(set.Tenant)), client.MatchingLabels{"batch.kubernetes.io/job-name": failed.name}); err != nil {
		return "", fmt.Errorf("reading the pods of a run: %w", err)
	}
	const limit = 1024 // for messages of events
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			if ended := container.State.Terminated; ended != nil && ended.Message != "" {
				return ended.Message[max(0, len(ended.Message)-limit):], nil
			}
		}
	}
	return "The pod has left no message: it did not start, took too long, or is gone.", nil
}
