package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodProblem is why a pod of a workload does not become ready, as the kubelet or the scheduler reports it. The zero value means no
// problem.
type PodProblem struct {
	Message string    // the same as long as the problem lasts
	Since   time.Time // the pod is not ready
}

// FindPodProblem returns the first problem of the pods of a workload: first containers that terminate, then containers that do not start,
// then pods without a node.
func FindPodProblem(pods []corev1.Pod) PodProblem {
	type ranked struct {
		PodProblem
		rank int
	}
	var found []ranked
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		add := func(rank int, message string) {
			if message != "" {
				found = append(found, ranked{PodProblem{message, notReadySince(pod)}, rank})
			}
		}
		for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			add(0, exitMessage(container))
			add(1, startMessage(container))
		}
		add(2, scheduleMessage(pod))
	}
	if len(found) == 0 {
		return PodProblem{}
	}
	return slices.MinFunc(found, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Message, b.Message), a.Since.Compare(b.Since))
	}).PodProblem
}

// Suffix returns the problem as the end of a message about missing pods, or "".
func (p PodProblem) Suffix() string {
	if p.Message == "" {
		return ""
	}
	return ": " + p.Message
}

// overdue reports whether a problem lasts longer than pods may take to become ready.
func (p PodProblem) overdue(deadline time.Duration, now time.Time) bool {
	return p.Message != "" && now.Sub(p.Since) > deadline
}

// defaultProgressDeadline is how long pods may take to become ready, by default of the API of Deployments.
const defaultProgressDeadline = 10 * time.Minute

// PodsMissing returns the result about pods that are missing: it is stalled once their problem lasts too long.
func PodsMissing(conditionType, reason string, problem PodProblem, now time.Time, format string, args ...any) Result {
	if problem.overdue(defaultProgressDeadline, now) {
		return Stall(conditionType, reason, format+stalledAdvice, args...)
	}
	return Wait(conditionType, reason, format, args...)
}

// stalledAdvice is the end of the message about pods that did not become ready in time.
const stalledAdvice = "; the time for them to become ready is over: correct what keeps them from it"

// notReadySince returns the time since which a pod is not ready.
func notReadySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status != corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// exitMessage returns how a container that is not ready last terminated. The state of a container that restarts changes with every
// attempt; its last termination remains.
func exitMessage(container corev1.ContainerStatus) string {
	if container.Ready {
		return ""
	}
	end := container.State.Terminated
	if end == nil {
		end = container.LastTerminationState.Terminated
	}
	if end == nil || end.Reason == "Completed" && container.State.Terminated != nil { // an init container that succeeded
		return ""
	}
	out := fmt.Sprintf("container %s exits with code %d", container.Name, end.ExitCode)
	if end.Reason != "" && end.Reason != "Error" {
		out += " (" + end.Reason + ")"
	}
	if line := lastLine(end.Message); line != "" {
		out += ": " + line
	}
	return out
}

// startMessage returns why a container cannot be started.
func startMessage(container corev1.ContainerStatus) string {
	waiting := container.State.Waiting
	if waiting == nil {
		return ""
	}
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		// The reason alternates between attempts; the message of a back-off contains that of the attempt.
		out := fmt.Sprintf("image %s of container %s cannot be pulled", container.Image, container.Name)
		if _, cause, ok := strings.Cut(waiting.Message, "ErrImagePull: "); ok {
			return out + ": " + truncate(cause)
		} else if waiting.Reason != "ImagePullBackOff" && waiting.Message != "" {
			return out + ": " + truncate(waiting.Message)
		}
		return out
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return fmt.Sprintf("container %s cannot be started: %s", container.Name, truncate(waiting.Message))
	}
	return ""
}

// scheduleMessage returns why a pod has no node.
func scheduleMessage(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return "a pod cannot be scheduled: " + truncate(condition.Message)
		}
	}
	return ""
}

// logHeader is the prefix that loggers write before a message: time, process and source line. It differs between attempts.
var logHeader = regexp.MustCompile(`^([IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\]]+\] |\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S* +)`)

// lastLine returns the last line of a log that has a message. A line that announces the end of a program takes precedence over later
// lines, such as the stack of a panic.
func lastLine(log string) string {
	last, ended := "", ""
	for line := range strings.SplitSeq(log, "\n") {
		line = withoutHeader(strings.TrimSpace(line))
		if line == "" {
			continue
		}
		last = line
		if ended == "" && hasAnyPrefix(line, "panic: ", "fatal error: ", "Error: ") {
			ended = line
		}
	}
	if ended != "" {
		last = ended
	}
	return truncate(last)
}

func hasAnyPrefix(line string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

// withoutHeader returns the message of a line of a log, of klog or in JSON.
func withoutHeader(line string) string {
	var entry struct {
		Msg   string `json:"msg"`
		Err   string `json:"err"`
		Error string `json:"error"`
	}
	if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &entry) == nil && entry.Msg != "" {
		if err := cmp.Or(entry.Err, entry.Error); err != "" {
			return entry.Msg + ": " + err
		}
		return entry.Msg
	}
	return logHeader.ReplaceAllString(line, "")
}

// maxQuoted bounds the text that a condition quotes, in bytes.
const maxQuoted = 400

func truncate(text string) string { return Truncate(strings.TrimSpace(text), maxQuoted) }

// Truncate returns a text, or its first bytes, up to the given number, and dots.
func Truncate(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "..."
}
