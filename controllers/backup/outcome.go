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

// outcome is what the pods of a Job have reported.
type outcome struct {
	// result of a pod that succeeded; nil while none has.
	result *config.Result
	// failed is set when no pod will be tried any more.
	failed bool
	// lost is set when a pod has succeeded, and is gone with its result.
	lost bool
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
			case err == nil && ended.ExitCode == 0 && result.ManifestDigest != "":
				out.result = &result
			case err == nil && result.Error != "":
				out.message = result.Error
			default: // killed before it could report
				out.message = fmt.Sprintf("pod %s ended with %s: look at its log", pod.Name, cmp.Or(ended.Reason, "no reason"))
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
			switch {
			case condition.Reason == batchv1.JobReasonDeadlineExceeded: // what the pod says is only that it was ended
				out.message = fmt.Sprintf("the Backup did not end within %s: raise maxUploadRate of its store, or find what is slow, the store or an etcd", deadlineSeconds*time.Second)
			case out.message == "":
				out.message = condition.Message
			}
		case batchv1.JobComplete:
			out.lost = true
		}
	}
	if out.failed || out.lost {
		return out
	}
	if out.message != "" {
		out.message = "; the last attempt failed and is repeated: " + out.message
	}
	if waits != "" {
		out.message += "; " + waits
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
