// Package jobs runs the Jobs of a stock kube-apiserver as processes of this machine, for tests of components that use Jobs: it is the job
// controller, the kubelet and the container runtime. It supports the features that such Jobs use, and fails a test that uses others.
package jobs

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/test/programs"
)

// Build builds the runner of the opentofu backend, and tofu, into a directory: they are Programs of an Executor, by their names.
func Build(ctx context.Context, root, into string) error {
	if err := programs.Build(ctx, root, into, "./cmd/tofu-runner"); err != nil {
		return err
	}
	return programs.Build(ctx, filepath.Join(root, "hack", "devcluster", "opentofu"), into, "github.com/opentofu/opentofu/cmd/tofu")
}

// Executor runs Jobs.
type Executor struct {
	config    *rest.Config
	clientset kubernetes.Interface
	// programs is the directory of the programs that containers run as /NAME.
	programs  string
	directory string
	running   background.Group

	mu      sync.Mutex
	held    bool
	jobs    map[types.UID]*process // those that have started
	history []Run
}

// Run is a Job that has started.
type Run struct {
	Namespace, Name string
	Args            []string
	Started         time.Time
	// Ended is zero while it runs.
	Ended time.Time
}

// Start runs the Jobs of a cluster until the test ends. programs is the directory of the programs that containers run as /NAME.
func Start(t testing.TB, config *rest.Config, programs string) *Executor {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	e := &Executor{config: config, clientset: clientset, programs: programs, directory: t.TempDir(), jobs: map[types.UID]*process{}}
	ctx, cancel := context.WithCancel(context.Background())
	e.running.Go(func() {
		for background.Sleep(ctx, 50*time.Millisecond) { // the API server may be down
			e.look(ctx, t)
		}
	})
	t.Cleanup(func() {
		cancel()
		e.mu.Lock()
		for _, p := range e.jobs {
			p.signal(syscall.SIGKILL)
		}
		e.mu.Unlock()
		e.running.Wait()
	})
	return e
}

// Hold prevents the start of Jobs, as if no node had capacity, until it is called with false.
func (e *Executor) Hold(hold bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = hold
}

// Kill kills the processes of the Jobs that run in a namespace immediately, as if their node had failed, and returns the number of Jobs.
func (e *Executor) Kill(namespace string) int { return e.signal(namespace, syscall.SIGKILL) }

// Terminate terminates the Jobs that run in a namespace gracefully, like a node that is drained, and returns their number.
func (e *Executor) Terminate(namespace string) int { return e.signal(namespace, syscall.SIGTERM) }

func (e *Executor) signal(namespace string, signal syscall.Signal) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	count := 0
	for _, p := range e.jobs {
		if p.job.Namespace == namespace && p.signal(signal) {
			count++
		}
	}
	return count
}

// Log returns the output of a Job.
func (e *Executor) Log(namespace, name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.jobs {
		if p.job.Namespace == namespace && p.job.Name == name {
			return p.output.String()
		}
	}
	return ""
}

// Runs returns the Jobs that have started in a namespace, in the order of their starts.
func (e *Executor) Runs(namespace string) []Run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.history), func(r Run) bool { return r.Namespace != namespace })
}

// look starts new Jobs, and ends those that are deleted or have exceeded their deadline.
func (e *Executor) look(ctx context.Context, t testing.TB) {
	list, err := e.clientset.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	present := map[types.UID]bool{}
	for i := range list.Items {
		job := &list.Items[i]
		present[job.UID] = job.DeletionTimestamp == nil
		if job.DeletionTimestamp == nil && e.jobs[job.UID] == nil && !e.held && !isFinished(job) {
			e.start(ctx, t, job)
		}
	}
	for uid, p := range e.jobs {
		if !present[uid] && !p.collected {
			p.collected = true
			e.running.Go(func() { p.collect(ctx) })
		}
		if deadline := p.job.Spec.ActiveDeadlineSeconds; !present[uid] || deadline != nil && time.Since(p.started) > time.Duration(*deadline)*time.Second {
			p.signal(syscall.SIGTERM)
		}
	}
}

func isFinished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// start starts a Job. Callers must hold mu.
func (e *Executor) start(ctx context.Context, t testing.TB, job *batchv1.Job) {
	p := &process{executor: e, job: job, started: time.Now(), ended: make(chan struct{})}
	e.jobs[job.UID] = p
	at := len(e.history)
	e.history = append(e.history, Run{Namespace: job.Namespace, Name: job.Name, Args: job.Spec.Template.Spec.Containers[0].Args, Started: p.started})
	e.running.Go(func() {
		failure, err := p.run(ctx)
		close(p.ended)
		e.mu.Lock()
		e.history[at].Ended = time.Now()
		e.mu.Unlock()
		if err == nil {
			err = p.finish(ctx, failure)
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("running the Job %s/%s: %v", job.Namespace, job.Name, err)
		}
	})
}

// finish writes the status that the job controller would write.
func (p *process) finish(ctx context.Context, failure string) error {
	now := metav1.Now()
	status := batchv1.JobStatus{StartTime: &metav1.Time{Time: p.started}, Ready: ptr.To[int32](0)}
	kinds, reason := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}, batchv1.JobReasonCompletionsReached
	if failure == "" {
		status.Succeeded, status.CompletionTime = 1, &now
	} else {
		status.Failed, kinds, reason = 1, []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}, batchv1.JobReasonBackoffLimitExceeded
	}
	for _, kind := range kinds {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastProbeTime: now, LastTransitionTime: now})
	}
	return p.updateStatus(ctx, status)
}

// updateStatus writes the status of the Job, if it still exists.
func (p *process) updateStatus(ctx context.Context, status batchv1.JobStatus) error {
	return p.whileServed(ctx, func(ctx context.Context) error {
		job, err := p.executor.clientset.BatchV1().Jobs(p.job.Namespace).Get(ctx, p.job.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if job.UID != p.job.UID {
			return nil
		}
		job.Status = status
		_, err = p.executor.clientset.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
		return err
	})
}
