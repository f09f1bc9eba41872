package backup

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backupstore"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/internal/backup/config"
)

const (
	configKey = "backup.yaml"
	// Where the pod mounts the configuration, and the Secrets that it reads and saves.
	configMount  = "/etc/backup/config"
	secretsMount = "/etc/backup/secrets"
	// attempts of a Backup, and how long its pods and their logs stay.
	attempts        = 3
	keptSeconds     = 24 * 60 * 60
	deadlineSeconds = 6 * 60 * 60
	// user of the image; Secrets are readable for its group.
	user int64 = 65532
	// memoryLimit is independent of the size of an installation: package internal/backup streams.
	memoryLimit = "128Mi"
)

// shortUID distinguishes a Backup from an earlier one of the same name.
func shortUID(backup *operatorv1alpha1.Backup) string {
	out, _, _ := strings.Cut(string(backup.UID), "-")
	return out
}

// jobName is also the name of the ConfigMap. The Job of a Backup that was deleted remains until the garbage collector has seen that, or for
// good: its result must not become that of a new Backup of the same name.
func jobName(backup *operatorv1alpha1.Backup) string { return backup.Name + "-" + shortUID(backup) }

// ID is what the names of the folders of a Backup begin with. It sorts by time, and is unique among Backups. Each attempt adds something of its own.
func ID(backup *operatorv1alpha1.Backup) string {
	return backup.CreationTimestamp.UTC().Format("20060102T150405Z") + "-" + shortUID(backup)
}

// input are the objects of a run.
type input struct {
	configMap *corev1.ConfigMap
	job       *batchv1.Job
}

// input reads what a run needs, and renders it.
func (s *scope) input(ctx context.Context) (input, error) {
	names, err := dependencies.ListShards(ctx, s.config.Cluster, s.root)
	if err != nil {
		return input{}, err
	}
	shards := []config.Shard{newShard(etcd.RootShardUsage(s.root), etcd.Connection(desired.NewRootShard(s.root).AsOwner(), s.root.Spec.Etcd))}
	for _, name := range names {
		shard, err := apply.Get[operatorv1alpha1.Shard](ctx, s.config.Cluster, s.root.Namespace, name)
		if err != nil {
			return input{}, err
		}
		if shard == nil {
			return input{}, fmt.Errorf("shard %s was deleted meanwhile", name)
		}
		owner := desired.NewShard(shard, s.root).AsOwner()
		shards = append(shards, newShard(etcd.ShardUsage(shard), etcd.Connection(owner, shard.Spec.Etcd)))
	}
	secrets, err := s.findSecrets(ctx, names)
	if err != nil {
		return input{}, err
	}
	return render(s.backup, s.store, s.root, s.config.Image, s.config.ClusterID, shards, secrets)
}

// newShard returns the etcd of a shard. Its credentials are named by the Secret until they are mounted.
func newShard(usage etcd.Usage, connection desired.Etcd) config.Shard {
	return config.Shard{Name: usage.Object.GetName(), Endpoints: connection.Servers, Prefix: usage.Locations[0].Prefix, CredentialsDirectory: connection.Credentials}
}

// Volumes are the volumes of a pod. Secrets are mounted once.
type Volumes struct {
	volumes []corev1.Volume
	mounts  []corev1.VolumeMount
	known   map[string]string
}

// Mount adds a volume.
func (v *Volumes) Mount(volume corev1.Volume, path string, readOnly bool) {
	v.volumes = append(v.volumes, volume)
	v.mounts = append(v.mounts, corev1.VolumeMount{Name: volume.Name, MountPath: path, ReadOnly: readOnly})
}

// MountConfig mounts a ConfigMap, and returns its directory.
func (v *Volumes) MountConfig(configMap string) string {
	v.Mount(corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, DefaultMode: ptr.To[int32](0o444)},
	}}, configMount, true)
	return configMount
}

// add mounts a Secret and returns the directory. A pod starts without the Secret, because the error of its program names what is missing; a
// pod that waits for a volume says nothing.
func (v *Volumes) add(secret string) string {
	if directory, found := v.known[secret]; found {
		return directory
	}
	name, directory := fmt.Sprintf("secret-%d", len(v.known)), path.Join(secretsMount, secret)
	v.Mount(corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: ptr.To[int32](0o440), Optional: ptr.To(true)},
	}}, directory, true)
	if v.known == nil {
		v.known = map[string]string{}
	}
	v.known[secret] = directory
	return directory
}

// MountKey mounts a Secret, and returns the file of a key.
func (v *Volumes) MountKey(ref operatorv1alpha1.SecretKeyReference) string {
	return path.Join(v.add(ref.Name), ref.Key)
}

// MountStore mounts the credentials of a store, and sets their files in its configuration.
func (v *Volumes) MountStore(store *operatorv1alpha1.BackupStore, cfg *config.Store) {
	keys := store.Spec.S3Credentials
	cfg.AccessKeyIDFile, cfg.SecretAccessKeyFile = v.MountKey(keys.AccessKeyID), v.MountKey(keys.SecretAccessKey)
	if keys.SessionToken != nil {
		cfg.SessionTokenFile = v.MountKey(*keys.SessionToken)
	}
	if store.Spec.EndpointCA != nil {
		cfg.EndpointCAFile = v.MountKey(*store.Spec.EndpointCA)
	}
}

// render renders the objects of a run. It is pure.
func render(backup *operatorv1alpha1.Backup, store *operatorv1alpha1.BackupStore, root *operatorv1alpha1.RootShard, image desired.Image, clusterID string,
	shards []config.Shard, secrets []config.Secret,
) (input, error) {
	image = image.With(root.Spec.Image)
	files := &Volumes{}
	cfg := config.Backup{
		ID:           ID(backup),
		Installation: config.Installation{KubernetesCluster: clusterID, Namespace: root.Namespace, RootShard: root.Name, Version: image.String()},
		Store:        backupstore.Config(store, root.Name), Shards: slices.Clone(shards), Secrets: slices.Clone(secrets),
	}
	files.MountConfig(jobName(backup))
	files.MountStore(store, &cfg.Store)
	for i := range cfg.Shards {
		if secret := cfg.Shards[i].CredentialsDirectory; secret != "" {
			cfg.Shards[i].CredentialsDirectory = files.add(secret)
		}
	}
	for i := range cfg.Secrets {
		cfg.Secrets[i].Directory = files.add(cfg.Secrets[i].Name)
	}
	content, err := yaml.Marshal(cfg)
	if err != nil {
		return input{}, err
	}
	labels := desired.AppLabels(desired.ComponentBackup, backup.Name)
	meta := metav1.ObjectMeta{Name: jobName(backup), Namespace: backup.Namespace, Labels: labels, OwnerReferences: desired.NewOwnerReferences("Backup", backup)}
	configMap := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: map[string]string{configKey: string(content)},
	}
	return input{configMap, NewJob(meta, Program{
		Image: image, Spec: root.Spec.Image, Command: []string{"/etcd", "backup", "create"}, Args: []string{"--config=" + configMount + "/" + configKey}, Files: files,
	})}, nil
}

// Program is a command of `etcd backup` in a pod.
type Program struct {
	Image desired.Image
	// Spec is that of the installation, and may be nil.
	Spec          *operatorv1alpha1.ImageSpec
	Command, Args []string
	Files         *Volumes
}

// NewJob returns a Job that runs a program until it succeeds, a few times. ReadOutcome returns what it reports.
func NewJob(meta metav1.ObjectMeta, program Program) *batchv1.Job {
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(user), RunAsGroup: ptr.To(user), FSGroup: ptr.To(user),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		// The pod needs nothing of the Kubernetes API.
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		Volumes:                      program.Files.volumes,
		Containers: []corev1.Container{{
			Name:            "backup",
			Image:           program.Image.String(),
			ImagePullPolicy: corev1.PullIfNotPresent,
			Command:         program.Command,
			Args:            append(program.Args, "--result-file="+corev1.TerminationMessagePathDefault),
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse(memoryLimit)},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memoryLimit)},
			},
			VolumeMounts:    program.Files.mounts,
			SecurityContext: desired.ContainerSecurity(),
		}},
	}
	if spec := program.Spec; spec != nil {
		pod.ImagePullSecrets = spec.ImagePullSecrets
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](attempts - 1), ActiveDeadlineSeconds: ptr.To[int64](deadlineSeconds), TTLSecondsAfterFinished: ptr.To[int32](keptSeconds),
			// One that is about to end still reads etcd.
			PodReplacementPolicy: ptr.To(batchv1.Failed),
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(meta.Labels)}, Spec: pod},
		},
	}
}
