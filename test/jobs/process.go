package jobs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/atoll-dev/atoll/internal/background"
)

// process is the process of a Job.
type process struct {
	executor *Executor
	job      *batchv1.Job
	started  time.Time
	// ended is closed when the process has ended; collected means that its pod is being deleted, because its Job does not exist any more.
	ended     chan struct{}
	collected bool

	mu     sync.Mutex
	cmd    *exec.Cmd // nil before it has started and after it has ended
	output output
	// killed means that the process must not start any more.
	killed bool
}

// messageLimit is how much of the log of a container the kubelet stores as its message.
const messageLimit = 2048

// output can be read while the process writes it.
type output struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.content.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.content.String()
}

// signal sends a signal to the processes of the container, and reports whether it runs.
func (p *process) signal(signal syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.cmd == nil {
		return false
	}
	target := p.cmd.Process.Pid
	if signal == syscall.SIGKILL {
		target = -target // a container ends with all its processes; other signals are sent to the first one
	}
	return syscall.Kill(target, signal) == nil
}

// run runs the container, and returns why it failed. An error means that the test has failed.
func (p *process) run(ctx context.Context) (failure string, err error) {
	var pod *corev1.Pod
	if err := p.whileServed(ctx, func(ctx context.Context) (err error) {
		pod, err = p.createPod(ctx)
		return err
	}); err != nil || pod == nil {
		return "", err
	}
	container := &pod.Spec.Containers[0]
	if err := p.updateStatus(ctx, batchv1.JobStatus{StartTime: &metav1.Time{Time: p.started}, Active: 1, Ready: ptr.To[int32](1)}); err != nil {
		return "", err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	if err := p.updatePod(ctx, pod); err != nil {
		return "", err
	}
	cmd, err := p.command(ctx, pod, container)
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	failure = p.execute(cmd)
	text := p.output.String()
	message := text[max(0, len(text)-messageLimit):]
	if failure != "" {
		failure += ": " + message
	}
	return failure, p.finishPod(ctx, pod, failure, message)
}

// execute runs a command in its own process group.
func (p *process) execute(cmd *exec.Cmd) (failure string) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return "killed before it started"
	}
	err := cmd.Start()
	if err == nil {
		p.cmd = cmd
	}
	p.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	p.mu.Lock()
	p.cmd = nil
	p.mu.Unlock()
	if err != nil {
		return err.Error()
	}
	return ""
}

func (p *process) createPod(ctx context.Context) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.job.Namespace, Name: p.podName(), Labels: p.job.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: p.job.Name, UID: p.job.UID, Controller: ptr.To(true)}},
		},
		Spec: *p.job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = "test"
	pods := p.executor.clientset.CoreV1().Pods(pod.Namespace)
	return pods.Create(ctx, pod, metav1.CreateOptions{})
}

// collect deletes the pod, like the garbage collector.
func (p *process) collect(ctx context.Context) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return
	}
	_ = p.whileServed(ctx, func(ctx context.Context) error {
		return p.executor.clientset.CoreV1().Pods(p.job.Namespace).Delete(ctx, p.podName(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	})
}

func (p *process) podName() string { return p.job.Name + "-" + string(p.job.UID[:5]) }

func (p *process) finishPod(ctx context.Context, pod *corev1.Pod, failure, message string) error {
	ended := &corev1.ContainerStateTerminated{Message: message, FinishedAt: metav1.Now()}
	pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
	if failure != "" {
		pod.Status.Phase, ended.ExitCode = corev1.PodFailed, 1
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: ended}}}
	return p.updatePod(ctx, pod)
}

// updatePod writes the status of the pod, if it still exists.
func (p *process) updatePod(ctx context.Context, pod *corev1.Pod) error {
	return p.whileServed(ctx, func(ctx context.Context) error {
		written, err := p.executor.clientset.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		if err == nil {
			pod.ResourceVersion = written.ResourceVersion
		}
		return err
	})
}

// command returns the command of a container, with its volumes as directories of this machine.
func (p *process) command(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (*exec.Cmd, error) {
	directory := filepath.Join(p.executor.directory, string(pod.UID))
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	kubeconfig, err := p.kubeconfig(ctx, pod, directory)
	if err != nil {
		return nil, err
	}
	var replaced []string
	for _, mount := range container.VolumeMounts {
		if strings.HasPrefix(mount.MountPath, "/var/run/secrets/") {
			continue // the token, which is part of the kubeconfig
		}
		path := filepath.Join(directory, mount.Name)
		if err := p.materialize(ctx, pod, mount.Name, path); err != nil {
			return nil, err
		}
		replaced = append(replaced, "="+mount.MountPath, "="+path)
	}
	paths := strings.NewReplacer(replaced...)
	var args []string
	for _, arg := range container.Args {
		args = append(args, paths.Replace(arg))
	}
	cmd := exec.Command(filepath.Join(p.executor.programs, container.Command[0]), args...)
	cmd.Dir = directory
	cmd.Env = []string{"PATH=/nowhere", "KUBECONFIG=" + kubeconfig}
	for _, variable := range container.Env {
		if variable.ValueFrom != nil {
			return nil, fmt.Errorf("environment variable %s has a source, which is not supported", variable.Name)
		}
		cmd.Env = append(cmd.Env, paths.Replace(variable.Name+"="+variable.Value))
	}
	return cmd, p.addSources(ctx, pod, container, cmd)
}

// addSources adds environment variables from Secrets.
func (p *process) addSources(ctx context.Context, pod *corev1.Pod, container *corev1.Container, cmd *exec.Cmd) error {
	for _, source := range container.EnvFrom {
		if source.SecretRef == nil {
			return fmt.Errorf("an environment that is not from a Secret is not supported")
		}
		secret, err := p.executor.clientset.CoreV1().Secrets(pod.Namespace).Get(ctx, source.SecretRef.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for key, value := range secret.Data {
			cmd.Env = append(cmd.Env, key+"="+string(value))
		}
	}
	return nil
}

// materialize creates a directory for a volume.
func (p *process) materialize(ctx context.Context, pod *corev1.Pod, name, path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.Name != name || volume.EmptyDir != nil:
		case volume.Secret != nil:
			secret, err := p.executor.clientset.CoreV1().Secrets(pod.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for key, value := range secret.Data {
				if err := os.WriteFile(filepath.Join(path, key), value, 0o400); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("volume %s is of a kind that is not supported", name)
		}
	}
	return nil
}

// kubeconfig writes the credentials of the pod's service account, which are the only ones of the process.
func (p *process) kubeconfig(ctx context.Context, pod *corev1.Pod, directory string) (string, error) {
	request := &authenticationv1.TokenRequest{}
	token, err := p.executor.clientset.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["runtime"] = &clientcmdapi.Cluster{Server: p.executor.config.Host, CertificateAuthority: p.executor.config.CAFile, CertificateAuthorityData: p.executor.config.CAData}
	config.AuthInfos["pod"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["pod"] = &clientcmdapi.Context{Cluster: "runtime", AuthInfo: "pod"}
	config.CurrentContext = "pod"
	path := filepath.Join(directory, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// whileServed repeats a call while the API server is not available. It returns no error for an object that does not exist any more.
func (p *process) whileServed(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			return err
		}
		if !background.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}
