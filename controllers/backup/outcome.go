package backup

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/internal/backup/config"
)

// outcome is what the pods of a Job have reported.
type outcome struct {
	// result of a pod that succeeded; nil while none has.
	result *config.Result
	// failed is set when no pod will be tried any more.
	failed bool
	// message is the last error.
	message string
}

func readOutcome(ctx context.Context, cluster apply.Cluster, job *batchv1.Job) (outcome, error) {
	pods := &corev1.PodList{}
	if err := cluster.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return outcome{}, err
	}
	return outcomeOf(job, pods.Items), nil
}

// outcomeOf sums up a Job and its pods.
func outcomeOf(job *batchv1.Job, pods []corev1.Pod) outcome {
	var out outcome
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, pod := range pods {
		for _, container := range pod.Status.ContainerStatuses {
			ended := container.State.Terminated
			if ended == nil {
				if waiting := container.State.Waiting; waiting != nil && waiting.Message != "" {
					out.message = waiting.Reason + ": " + waiting.Message
				}
				continue
			}
			result, err := config.ParseResult(ended.Message)
			switch {
			case err == nil && ended.ExitCode == 0 && result.ManifestDigest != "":
				out.result = &result
			case err == nil && result.Error != "":
				out.message = result.Error
			default: // killed before it could report
				out.message = "the pod ended with " + ended.Reason
			}
		}
	}
	if out.result != nil {
		out.message = ""
		return out
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobFailed:
			out.failed = true
			if out.message == "" {
				out.message = condition.Message
			}
		case batchv1.JobComplete:
			out.failed, out.message = true, "the pod is gone, and what it reported with it: look for manifest.json in the store"
		}
	}
	if !out.failed && out.message != "" {
		out.message = "; the last attempt failed and is repeated: " + out.message
	}
	return out
}

// roundUp is a number of bytes for people.
func roundUp(bytes int64) *resource.Quantity {
	unit := int64(1)
	for _, next := range []int64{1 << 10, 1 << 20, 1 << 30} {
		if bytes >= 10*next {
			unit = next
		}
	}
	return resource.NewQuantity((bytes+unit-1)/unit*unit, resource.BinarySI)
}
