package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// DeploymentResult returns the result about the pods of a Deployment that serve, of any revision: it is satisfied while as many as the
// Deployment requires are ready, even while they wait for their replacement or are being replaced. live is nil while the Deployment does
// not exist. The result is stalled if missing pods did not become ready within the progress deadline of the Deployment; problem is the
// reason.
func DeploymentResult(conditionType, name string, live *appsv1.Deployment, problem PodProblem, now time.Time) Result {
	if live == nil {
		return Wait(conditionType, operatorv1alpha1.ReasonDeploymentUnavailable, "Deployment %s does not exist yet", name)
	}
	want := wantedPods(live)
	if live.Status.ReadyReplicas >= want {
		return OK(conditionType, operatorv1alpha1.ReasonReplicasUp, "all %d pods are ready", want)
	}
	message := fmt.Sprintf("%d of %d pods of Deployment %s are ready", live.Status.ReadyReplicas, want, live.Name) + details(live, problem)
	if ProgressDeadlineExceeded(live) {
		return Stall(conditionType, operatorv1alpha1.ReasonReplicasUnavailable, "%s"+stalledAdvice, message)
	}
	return PodsMissing(conditionType, operatorv1alpha1.ReasonReplicasUnavailable, problem, now, "%s", message)
}

// ProgressDeadlineExceeded reports whether new pods of a Deployment did not become ready in time.
func ProgressDeadlineExceeded(live *appsv1.Deployment) bool {
	return slices.ContainsFunc(live.Status.Conditions, func(condition appsv1.DeploymentCondition) bool {
		return condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse && condition.Reason == progressDeadlineExceeded
	})
}

// progressDeadlineExceeded is the reason with which the controller of Deployments reports the end of the deadline.
const progressDeadlineExceeded = "ProgressDeadlineExceeded"

// RolloutMessage describes the progress of replacing the pods of a Deployment, or is "" when all of them run the newest revision and are
// ready.
func RolloutMessage(live *appsv1.Deployment, problem PodProblem) string {
	want, s := wantedPods(live), live.Status
	switch {
	case s.ObservedGeneration < live.Generation:
		return fmt.Sprintf("Deployment %s is being updated", live.Name)
	case IsUpdated(live) && s.ReadyReplicas == want:
		return ""
	}
	return fmt.Sprintf("%d of %d pods of Deployment %s run the newest revision, %d pods are ready", s.UpdatedReplicas, want, live.Name, s.ReadyReplicas) + details(live, problem)
}

// IsUpdated reports whether all pods of a Deployment run its newest revision, ready or not.
func IsUpdated(live *appsv1.Deployment) bool {
	want, s := wantedPods(live), live.Status
	return s.ObservedGeneration >= live.Generation && s.UpdatedReplicas == want && s.Replicas == want
}

// HasOldPods reports whether pods of a Deployment run an older revision than its newest one.
func HasOldPods(live *appsv1.Deployment) bool {
	s := live.Status
	return s.Replicas > s.UpdatedReplicas || s.Replicas > 0 && s.ObservedGeneration < live.Generation
}

func wantedPods(live *appsv1.Deployment) int32 { return ptr.Deref(live.Spec.Replicas, 1) }

// details describes why pods of a Deployment are missing, and how to list them.
func details(live *appsv1.Deployment, problem PodProblem) string {
	out := problem.Suffix() + fmt.Sprintf("; see `kubectl -n %s get pods -l %s`", live.Namespace, podSelector(live))
	for _, condition := range live.Status.Conditions {
		if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse {
			out += "; " + condition.Message
		}
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			out += "; " + condition.Message
		}
	}
	return out
}

// Version returns the image tag that all pods of a Deployment run, or "" while they differ.
func Version(live *appsv1.Deployment) string {
	if live == nil || len(live.Spec.Template.Spec.Containers) == 0 || !IsUpdated(live) {
		return ""
	}
	image := live.Spec.Template.Spec.Containers[0].Image
	return image[strings.LastIndex(image, ":")+1:]
}

func podSelector(live *appsv1.Deployment) string {
	labels := live.Spec.Selector.MatchLabels
	return fmt.Sprintf("app.kubernetes.io/component=%s,app.kubernetes.io/instance=%s",
		labels["app.kubernetes.io/component"], labels["app.kubernetes.io/instance"])
}
