package backup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/config"
)

// Outcome is what the pods of a Job have reported.
type Outcome struct {
	// Result of a pod that succeeded; nil while none has.
	Result *config.Result
	// Failed is set when no pod will be tried any more.
	Failed bool
	// Lost is set when a pod has succeeded, and is gone with its result.
	Lost bool
	// Message is the last error, or why no pod runs. Reported is whether a pod has said so before it ended.
	Message  string
	Reported bool
}

// ReadOutcome reads the pods of a Job of NewJob. ifSlow is what to do about a Job that did not end in time.
func ReadOutcome(ctx context.Context, cluster apply.Cluster, job *batchv1.Job, ifSlow string) (Outcome, error) {
	pods := &corev1.PodList{}
	if err := cluster.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return Outcome{}, err
	}
	return outcomeOf(job, pods.Items, ifSlow), nil
}

// outcomeOf sums up a Job and its pods.
func outcomeOf(job *batchv1.Job, pods []corev1.Pod, ifSlow string) Outcome {
	var out Outcome
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	waits := fmt.Sprintf("it has no pod yet; if that lasts, the events of Job %s say why", job.Name)
	for _, pod := range pods {
		waits = waitsOf(pod)
		for _, container := range pod.Status.ContainerStatuses {
			ended := container.State.Terminated
			if ended == nil {
				continue
			}
			result, err := config.ParseResult(ended.Message)
			switch {
			case err == nil && ended.ExitCode == 0 && (result.BackupID != "" || result.ManifestDigest != ""):
				out.Result = &result
			case err == nil && result.Error != "":
				out.Message, out.Reported = result.Error, true
			default: // killed before it could report
				out.Message, out.Reported = fmt.Sprintf("pod %s ended with %s: read its log", pod.Name, cmp.Or(ended.Reason, "no reason")), false
			}
		}
	}
	if out.Result != nil {
		out.Message = ""
		return out
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobFailed:
			out.Failed = true
			switch {
			case condition.Reason == batchv1.JobReasonDeadlineExceeded: // what the pod says is only that it was ended
				out.Reported = false
				out.Message = fmt.Sprintf("it did not end within %s: %s", deadlineSeconds*time.Second, ifSlow)
			case out.Message == "":
				out.Message = condition.Message
			}
		case batchv1.JobComplete:
			out.Lost = true
		}
	}
	if out.Failed || out.Lost {
		return out
	}
	if out.Message != "" {
		out.Message = "; the last attempt failed and is repeated: " + out.Message
	}
	if waits != "" {
		out.Message += "; " + waits
	}
	return out
}

// waitsOf returns why a pod has not started, or "". The kubelet reports some reasons, such as a volume that cannot be mounted, only as events.
func waitsOf(pod corev1.Pod) string {
	started := slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Waiting == nil })
	if started || pod.Status.Phase == corev1.PodFailed {
		return ""
	}
	if problem := status.FindPodProblem([]corev1.Pod{pod}); problem.Message != "" {
		return problem.Message
	}
	return fmt.Sprintf("pod %s has not started; if that lasts, its events say why", pod.Name)
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
