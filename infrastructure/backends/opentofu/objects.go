package opentofu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

const (
	defaultTimeout = 30 * time.Minute
	// user is the user of the runner's image.
	user = 65532
	// gracePeriod is longer than that of tofu, so that the state is saved.
	gracePeriod = runner.GracePeriod + 30*time.Second

	inputsMount, workMount = "/inputs", "/work"
)

// Annotations of Jobs, below the API group of the provider.
const (
	annotationSequence  = "run-sequence"
	annotationAttempt   = "run-attempt"
	annotationOperation = "run-operation"
	annotationRevision  = "run-revision"
)

// labelRuns is the label key of pods, below the API group of the provider. Its value is the result of nameOf.
const labelRuns = "runs-of"

// defaultResources returns the resources for the container of a run, unless the Template specifies others.
func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
}

// nameOf returns the name of the lease, service account and role of an instance, and the beginning of the names of its other objects.
func nameOf(s runtimecluster.Set) string { return "tofu-" + s.Hash() }

func inputsName(name string) string      { return name + "-inputs" }
func credentialsName(name string) string { return name + "-credentials" }

// renderer renders the objects of an instance.
type renderer struct {
	group string
	// image is the image of the provider, which Templates may override.
	image         string
	leaseDuration time.Duration
}

// render returns the objects that a run needs, and its Job at the end. State and result have no content here, because only runs write it.
// credentials are environment variables.
func (r *renderer) render(s runtimecluster.Set, i *inputs, credentials map[string][]byte, next *run) ([]*unstructured.Unstructured, error) {
	name := nameOf(s)
	secret, err := r.inputs(name, i)
	if err != nil {
		return nil, err
	}
	objects := []client.Object{
		&corev1.Secret{TypeMeta: typeOf("v1", "Secret"), ObjectMeta: metav1.ObjectMeta{Name: runner.StateName(name)}},
		&corev1.Secret{TypeMeta: typeOf("v1", "Secret"), ObjectMeta: metav1.ObjectMeta{Name: runner.ResultName(name)}},
		&coordinationv1.Lease{TypeMeta: typeOf("coordination.k8s.io/v1", "Lease"), ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.ServiceAccount{TypeMeta: typeOf("v1", "ServiceAccount"), ObjectMeta: metav1.ObjectMeta{Name: name}, AutomountServiceAccountToken: ptr.To(false)},
		role(name),
		&rbacv1.RoleBinding{TypeMeta: typeOf("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: runtimecluster.Namespace(s.Tenant)}}},
		secret,
	}
	if len(i.settings.Run.Credentials) > 0 {
		objects = append(objects, &corev1.Secret{TypeMeta: typeOf("v1", "Secret"), ObjectMeta: metav1.ObjectMeta{Name: credentialsName(name)}, Data: credentials})
	}
	objects = append(objects, r.job(s, &i.settings.Run, next))
	rendered := make([]*unstructured.Unstructured, len(objects))
	for at, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		// Typed objects have empty fields that must not be applied.
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
		rendered[at] = &unstructured.Unstructured{Object: content}
	}
	return rendered, nil
}

func typeOf(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// role returns the permissions of a run. The backend creates the objects first, so that runs need not create or list any.
func role(name string) *rbacv1.Role {
	return &rbacv1.Role{TypeMeta: typeOf("rbac.authorization.k8s.io/v1", "Role"), ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{runner.StateName(name), runner.ResultName(name)}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, ResourceNames: []string{name}, Verbs: []string{"get", "update"}},
	}}
}

func (r *renderer) inputs(name string, i *inputs) (*corev1.Secret, error) {
	settings, err := json.Marshal(i.settings)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{TypeMeta: typeOf("v1", "Secret"), ObjectMeta: metav1.ObjectMeta{Name: inputsName(name)}, Data: map[string][]byte{runner.SettingsKey: settings}}
	for file, content := range i.files {
		secret.Data[file] = []byte(content)
	}
	return secret, nil
}

// parseInputs parses the Secret that the method inputs returns.
func parseInputs(secret *corev1.Secret) (*inputs, error) {
	i := &inputs{files: map[string]string{}}
	for file, content := range secret.Data {
		if file != runner.SettingsKey {
			i.files[file] = string(content)
		}
	}
	if err := json.Unmarshal(secret.Data[runner.SettingsKey], &i.settings); err != nil {
		return nil, fmt.Errorf("reading the inputs %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return i, nil
}

func (r *renderer) imageOf(settings *runSettings) string { return cmp.Or(settings.Image, r.image) }

func (r *renderer) job(s runtimecluster.Set, settings *runSettings, next *run) *batchv1.Job {
	timeout := defaultTimeout
	if settings.Timeout != nil {
		timeout = settings.Timeout.Duration
	}
	resources := settings.Resources
	if resources.Requests == nil && resources.Limits == nil {
		resources = defaultResources()
	}
	name := nameOf(s)
	var environment []corev1.EnvFromSource
	if len(settings.Credentials) > 0 {
		environment = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: credentialsName(name)}}}}
	}
	return &batchv1.Job{
		TypeMeta: typeOf("batch/v1", "Job"),
		ObjectMeta: metav1.ObjectMeta{Name: next.name, Annotations: map[string]string{
			r.group + "/" + annotationSequence: strconv.Itoa(next.sequence), r.group + "/" + annotationAttempt: strconv.Itoa(next.attempt),
			r.group + "/" + annotationOperation: string(next.operation), r.group + "/" + annotationRevision: next.revision,
		}},
		Spec: batchv1.JobSpec{
			// The backend retries a run itself, with another Job.
			BackoffLimit: ptr.To[int32](0), ActiveDeadlineSeconds: ptr.To(int64(timeout.Seconds())),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{r.group + "/" + labelRuns: name}}, Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(gracePeriod.Seconds())),
				ServiceAccountName: name, AutomountServiceAccountToken: ptr.To(true), EnableServiceLinks: ptr.To(false),
				SecurityContext: &corev1.PodSecurityContext{
					RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user), FSGroup: ptr.To[int64](user),
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				Containers: []corev1.Container{{
					Name: "tofu", Image: r.imageOf(settings), ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/tofu-runner"},
					Args: []string{string(next.operation), "--namespace=" + runtimecluster.Namespace(s.Tenant), "--name=" + name,
						"--lease-duration=" + r.leaseDuration.String(), "--inputs=" + inputsMount, "--work=" + workMount},
					EnvFrom:                  environment,
					Env:                      []corev1.EnvVar{{Name: "TMPDIR", Value: workMount}},
					Resources:                resources,
					TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
					SecurityContext: &corev1.SecurityContext{
						AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					},
					VolumeMounts: []corev1.VolumeMount{{Name: "inputs", MountPath: inputsMount, ReadOnly: true}, {Name: "work", MountPath: workMount}},
				}},
				Volumes: []corev1.Volume{
					{Name: "inputs", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: inputsName(name)}}},
					{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("2Gi"))}}},
				},
			}},
		},
	}
}

// runOf returns the run of a Job.
func (r *renderer) runOf(job *batchv1.Job) *run {
	annotation := func(key string) string { return job.Annotations[r.group+"/"+key] }
	number := func(key string) int {
		value, _ := strconv.Atoi(annotation(key)) // 0 if somebody has removed the annotation
		return value
	}
	found := &run{name: job.Name, sequence: number(annotationSequence), attempt: number(annotationAttempt), operation: runner.Operation(annotation(annotationOperation)),
		revision: annotation(annotationRevision), active: true, uid: job.UID, image: job.Spec.Template.Spec.Containers[0].Image}
	for _, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			found.active, found.succeeded, found.finished = false, condition.Type == batchv1.JobComplete, condition.LastTransitionTime.Time
		}
	}
	found.pending = found.active && ptr.Deref(job.Status.Ready, 0) == 0
	return found
}

// lastRun returns the active run, or else the last one.
func lastRun(runs []*run) *run {
	if len(runs) == 0 {
		return nil
	}
	return slices.MaxFunc(runs, func(a, b *run) int {
		if a.active != b.active {
			if a.active {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.sequence, b.sequence)
	})
}

// nextRun returns the run that a decision starts. Its name is derived from the previous run, so that only one of two replicas that start a
// run concurrently succeeds.
func nextRun(name string, last *run, next decision, revision string) *run {
	started := &run{sequence: 1, attempt: next.attempt, operation: next.start, revision: revision, active: true}
	if last != nil {
		started.sequence = last.sequence + 1
	}
	started.name = fmt.Sprintf("%s-%d", name, started.sequence)
	return started
}
