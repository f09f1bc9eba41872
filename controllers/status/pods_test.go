package status_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/controllers/status"
)

var since = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newPod is a pod that is not ready since a time, with a container.
func newPod(container corev1.ContainerStatus) corev1.Pod {
	container.Name, container.Image = "kcp", "example.com/atoll:v2"
	return corev1.Pod{Status: corev1.PodStatus{
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}},
		ContainerStatuses: []corev1.ContainerStatus{container},
	}}
}

// exited is a container that restarts after it terminated.
func exited(end corev1.ContainerStateTerminated) corev1.Pod {
	if end.Reason == "" {
		end.Reason = "Error"
	}
	return newPod(corev1.ContainerStatus{
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container"}},
		LastTerminationState: corev1.ContainerState{Terminated: &end},
	})
}

func waiting(reason, message string) corev1.Pod {
	return newPod(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
}

func TestFindPodProblem(t *testing.T) {
	const kcp = "container kcp exits with code 1"
	end := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "boom"}
	unschedulable := corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(since)}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient cpu.",
	}}}}
	deleted := exited(end)
	deleted.DeletionTimestamp = &metav1.Time{Time: since}
	initialized := newPod(corev1.ContainerStatus{})
	initialized.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
	}}
	const pull = "image example.com/atoll:v2 of container kcp cannot be pulled"
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"no pods":           {nil, ""},
		"a pod that starts": {[]corev1.Pod{newPod(corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})}, ""},
		"a container whose image is being pulled": {[]corev1.Pod{waiting("ContainerCreating", "")}, ""},
		"a container that ended once and is ready": {[]corev1.Pod{newPod(corev1.ContainerStatus{
			Ready: true, LastTerminationState: corev1.ContainerState{Terminated: &end},
		})}, ""},
		"an init container that succeeded": {[]corev1.Pod{initialized}, ""},
		"a pod that is being deleted":      {[]corev1.Pod{deleted}, ""},
		"a container that runs again after it ended": {[]corev1.Pod{newPod(corev1.ContainerStatus{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: &end},
		})}, kcp + ": boom"},
		"a container that has just ended": {[]corev1.Pod{newPod(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &end}})}, kcp + ": boom"},
		"the last line of the log":        {[]corev1.Pod{exited(corev1.ContainerStateTerminated{ExitCode: 1, Message: "starting\n\nunknown flag: --fo\n"})}, kcp + ": unknown flag: --fo"},
		"a line of klog, without its header": {[]corev1.Pod{exited(corev1.ContainerStateTerminated{
			ExitCode: 1, Message: `E1124 06:10:32.123456       1 run.go:74] "command failed" err="no such file"`,
		})}, kcp + `: "command failed" err="no such file"`},
		"a line of JSON, without its time": {[]corev1.Pod{exited(corev1.ContainerStateTerminated{
			ExitCode: 1, Message: `{"level":"fatal","ts":"2026-11-24T06:10:32.123Z","caller":"etcdmain/etcd.go:210","msg":"discovery failed","error":"cannot open database"}`,
		})}, kcp + ": discovery failed: cannot open database"},
		"a line with a time": {[]corev1.Pod{exited(corev1.ContainerStateTerminated{ExitCode: 1, Message: "2026/11/24 06:10:32 cannot listen"})}, kcp + ": cannot listen"},
		"an error before what follows it": {[]corev1.Pod{exited(corev1.ContainerStateTerminated{
			ExitCode: 1, Message: "Error: etcd is too old\nRun 'kcp start --help' for usage.",
		})}, kcp + ": Error: etcd is too old"},
		"a panic before its stack": {[]corev1.Pod{exited(corev1.ContainerStateTerminated{
			ExitCode: 2, Message: "panic: nil map\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d",
		})}, "container kcp exits with code 2: panic: nil map"},
		"no memory, without a log":        {[]corev1.Pod{exited(corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"})}, "container kcp exits with code 137 (OOMKilled)"},
		"an image that is missing":        {[]corev1.Pod{waiting("ErrImagePull", "not found")}, pull + ": not found"},
		"a back-off from a missing image": {[]corev1.Pod{waiting("ImagePullBackOff", `Back-off pulling image "example.com/atoll:v2": ErrImagePull: not found`)}, pull + ": not found"},
		"a back-off without the cause":    {[]corev1.Pod{waiting("ImagePullBackOff", `Back-off pulling image "example.com/atoll:v2"`)}, pull},
		"a configuration that is missing": {[]corev1.Pod{waiting("CreateContainerConfigError", `secret "s" not found`)}, `container kcp cannot be started: secret "s" not found`},
		"no node":                         {[]corev1.Pod{unschedulable}, "a pod cannot be scheduled: 0/1 nodes are available: 1 Insufficient cpu."},
		"the end of a container before the start of another, in any order of pods": {[]corev1.Pod{unschedulable, waiting("ErrImagePull", "not found"), exited(end)}, kcp + ": boom"},
	} {
		t.Run(name, func(t *testing.T) {
			problem := status.FindPodProblem(tc.pods)
			if problem.Message != tc.want {
				t.Errorf("got %q, want %q", problem.Message, tc.want)
			}
			if tc.want != "" && !problem.Since.Equal(since) {
				t.Errorf("since %s", problem.Since)
			}
		})
	}
}
