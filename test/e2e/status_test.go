//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// testStatus checks the three conditions and observedGeneration that kubectl wait, Argo CD and Flux evaluate, the
// phase and the printer columns.
func (in *installation) testStatus(t *testing.T) {
	for _, u := range in.listCustomResources(t) {
		observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		if observed != u.GetGeneration() {
			t.Errorf("%s %s: observedGeneration %d, generation %d", u.GetKind(), u.GetName(), observed, u.GetGeneration())
		}
		for kind, want := range map[string]metav1.ConditionStatus{
			operatorv1alpha1.ConditionReady:       metav1.ConditionTrue,
			operatorv1alpha1.ConditionReconciling: metav1.ConditionFalse,
			operatorv1alpha1.ConditionStalled:     metav1.ConditionFalse,
			operatorv1alpha1.ConditionAvailable:   metav1.ConditionTrue,
		} {
			if c := condition(u, kind); c == nil {
				t.Errorf("%s %s has no condition %s", u.GetKind(), u.GetName(), kind)
			} else if c.Status != want || c.ObservedGeneration != u.GetGeneration() || c.Reason == "" {
				t.Errorf("%s %s: %s=%s (%s, generation %d of %d), want %s: %s", u.GetKind(), u.GetName(), kind, c.Status, c.Reason, c.ObservedGeneration, u.GetGeneration(), want, c.Message)
			}
		}
		want := "Running"
		if u.GetKind() == "Kubeconfig" {
			want = "Ready"
		}
		if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase != want {
			t.Errorf("%s %s: phase %q, want %q", u.GetKind(), u.GetName(), phase, want)
		}
	}
}

func (in *installation) listCustomResources(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, kind := range []string{"RootShard", "CacheServer", "Shard", "VirtualWorkspace", "FrontProxy", "Kubeconfig"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := in.host.List(t.Context(), list, client.InNamespace(in.namespace)); err != nil {
			t.Fatalf("list %s: %v", kind, err)
		}
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	}
	return out
}

// dump logs what is needed to find out why a step failed: statuses, pods, events and the last lines of all logs, the
// operator's included. It runs after the test's context has ended.
func (in *installation) dump(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	defer func() { t.Logf("state at the failure:\n%s", out.String()) }()

	for _, kind := range []string{"RootShard", "FrontProxy", "Kubeconfig"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(operatorv1alpha1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := in.host.List(ctx, list, client.InNamespace(in.namespace)); err != nil {
			fmt.Fprintf(&out, "list %s: %v\n", kind, err)
		}
		for _, u := range list.Items {
			status, _ := yaml.Marshal(u.Object["status"])
			fmt.Fprintf(&out, "--- %s %s, generation %d\n%s", kind, u.GetName(), u.GetGeneration(), status)
		}
	}
	events := &corev1.EventList{}
	if err := in.host.List(ctx, events, client.InNamespace(in.namespace)); err == nil {
		fmt.Fprintln(&out, "--- warnings")
		for _, e := range events.Items {
			if e.Type != corev1.EventTypeNormal {
				fmt.Fprintf(&out, "%s %s: %s: %s (%d times)\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message, e.Count)
			}
		}
	}
	in.dumpPods(ctx, &out, in.namespace)
	in.dumpPods(ctx, &out, "atoll-system")
}

func (in *installation) dumpPods(ctx context.Context, out io.Writer, ns string) {
	clients, err := kubernetes.NewForConfig(in.config)
	if err != nil {
		return
	}
	pods := &corev1.PodList{}
	if err := in.host.List(ctx, pods, client.InNamespace(ns)); err != nil {
		fmt.Fprintf(out, "list pods of %s: %v\n", ns, err)
		return
	}
	for i := range pods.Items {
		dumpPod(ctx, out, clients, &pods.Items[i])
	}
}

func dumpPod(ctx context.Context, out io.Writer, clients kubernetes.Interface, pod *corev1.Pod) {
	fmt.Fprintf(out, "--- pod %s/%s: %s, ready %v\n", pod.Namespace, pod.Name, pod.Status.Phase, podReady(pod))
	for _, c := range pod.Status.ContainerStatuses {
		previous := []bool{false}
		if c.RestartCount > 0 {
			fmt.Fprintf(out, "%s has restarted %d times, last: %v\n", c.Name, c.RestartCount, c.LastTerminationState.Terminated)
			previous = []bool{true, false}
		}
		if c.State.Waiting != nil {
			fmt.Fprintf(out, "%s waits: %s: %s\n", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		}
		for _, p := range previous {
			lines := int64(30)
			log, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: c.Name, TailLines: &lines, Previous: p}).DoRaw(ctx)
			if err != nil {
				fmt.Fprintf(out, "log of %s: %v\n", c.Name, err)
				continue
			}
			fmt.Fprintf(out, "log of %s (before its restart: %v):\n  %s\n", c.Name, p, strings.ReplaceAll(strings.TrimSpace(string(log)), "\n", "\n  "))
		}
	}
}
