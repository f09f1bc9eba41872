package status

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// DeploymentResult returns the result about the pods of a Deployment. live is nil while there is none.
func DeploymentResult(conditionType, name string, live *appsv1.Deployment) Result {
	if live == nil {
		return Wait(conditionType, operatorv1alpha1.ReasonDeploymentUnavailable, "Deployment %s does not exist yet", name)
	}
	want := int32(1)
	if live.Spec.Replicas != nil {
		want = *live.Spec.Replicas
	}
	s := live.Status
	if s.ObservedGeneration < live.Generation {
		return Wait(conditionType, operatorv1alpha1.ReasonReplicasUnavailable, "Deployment %s is being updated", live.Name)
	}
	if s.UpdatedReplicas == want && s.ReadyReplicas == want && s.Replicas == want {
		return OK(conditionType, operatorv1alpha1.ReasonReplicasUp, "all %d pods are ready", want)
	}
	message := fmt.Sprintf("%d of %d pods of Deployment %s run the newest revision, %d are ready; see `kubectl -n %s get pods -l %s`",
		s.UpdatedReplicas, want, live.Name, s.ReadyReplicas, live.Namespace, podSelector(live))
	for _, condition := range s.Conditions {
		if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse {
			message += "; " + condition.Message
		}
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			message += "; " + condition.Message
		}
	}
	return Wait(conditionType, operatorv1alpha1.ReasonReplicasUnavailable, "%s", message)
}

// Version returns the image tag that all pods of a Deployment run, or "" while they differ.
func Version(live *appsv1.Deployment) string {
	if live == nil || len(live.Spec.Template.Spec.Containers) == 0 || DeploymentResult("", "", live).State != Satisfied {
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
