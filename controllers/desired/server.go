package desired

import (
	"fmt"
	"maps"
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// DefaultReplicas is the number of pods of a component whose spec does not set it.
const DefaultReplicas int32 = 2

// server contains the common parts of the Deployments of all components.
type server struct {
	component

	container string
	command   []string
	args      []string
	probes    probes
	volumes   []corev1.Volume
	mounts    []corev1.VolumeMount
	resources corev1.ResourceRequirements

	image     Image
	imageSpec *operatorv1alpha1.ImageSpec
	replicas  *int32 // nil: an autoscaler controls it
	template  *operatorv1alpha1.DeploymentTemplate
	extras    operatorv1alpha1.ContainerExtras

	mayRunAsRoot bool // a program of the user
}

// A terminating pod serves until every node has removed it from its Service. Then its server drains the requests in flight.
const (
	preStopSeconds        int64 = 5
	requestTimeoutSeconds int64 = 60 // the request timeout of servers
)

type probes struct{ startup, readiness, liveness *corev1.Probe }

// defaultProbes are the probes of servers that are not shards.
func defaultProbes() probes {
	return probes{startup: httpsProbe("/readyz", 2, 2, 150), readiness: httpsProbe("/readyz", 15, 10, 3), liveness: httpsProbe("/livez", 15, 10, 3)}
}

// deployment renders the Deployment. It does not set replicas that the spec omits, so that an autoscaler can own them.
func (s server) deployment() *appsv1.Deployment {
	selector := s.Labels()
	security := ContainerSecurity()
	if !s.mayRunAsRoot {
		security.RunAsNonRoot = ptr.To(true) // so that namespaces with the profile restricted accept the pod
	}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: s.Labels()},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: runtimeDefault()},
			// No server is a client of the cluster that it runs on.
			AutomountServiceAccountToken: ptr.To(false),
			ImagePullSecrets:             pullSecrets(s.imageSpec, nil),
			TopologySpreadConstraints:    topologySpread(selector),
			Volumes:                      append(s.volumes, s.extras.ExtraVolumes...),
			Containers: []corev1.Container{{
				Name:            s.container,
				Image:           s.image.With(s.imageSpec).String(),
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         s.command,
				Args:            s.args,
				Ports:           []corev1.ContainerPort{{Name: "https", ContainerPort: ServerPort, Protocol: corev1.ProtocolTCP}},
				Resources:       s.resources,
				StartupProbe:    s.probes.startup,
				ReadinessProbe:  s.probes.readiness,
				LivenessProbe:   s.probes.liveness,
				VolumeMounts:    append(s.mounts, s.extras.ExtraVolumeMounts...),
				SecurityContext: security,
				// The condition of the owner quotes the last lines of the log of a container that fails.
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				Lifecycle:                &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: preStopSeconds}}},
			}},
			TerminationGracePeriodSeconds: ptr.To(preStopSeconds + requestTimeoutSeconds + 5),
		},
	}
	meta := s.meta(s.Server())
	if t := s.template; t != nil {
		meta = withTemplateMetadata(meta, t.Metadata)
		if t.Spec != nil && t.Spec.Template != nil {
			pod.ObjectMeta = withTemplateMetadata(pod.ObjectMeta, t.Spec.Template.Metadata)
			applyPodTemplate(&pod.Spec, s.imageSpec, t.Spec.Template.Spec)
		}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: s.replicas,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge:       ptr.To(intstr.FromInt32(1)),
					MaxUnavailable: ptr.To(intstr.FromInt32(0)),
				},
			},
			Template: pod,
		},
	}
}

// topologySpread prefers to spread the pods of a component over nodes and zones. It is not a requirement: in a small cluster they share a
// node. A single replica also has it, so that scaling does not replace the first pod.
func topologySpread(selector map[string]string) []corev1.TopologySpreadConstraint {
	var out []corev1.TopologySpreadConstraint
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
		out = append(out, corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
			// Pods of older revisions do not count, because they are being replaced.
			MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
		})
	}
	return out
}

// applyPodTemplate sets the fields of the template. It adds pull secrets to those of the image.
func applyPodTemplate(pod *corev1.PodSpec, image *operatorv1alpha1.ImageSpec, template *operatorv1alpha1.PodSpecTemplate) {
	if template == nil {
		return
	}
	pod.NodeSelector = template.NodeSelector
	pod.Affinity = template.Affinity
	pod.Tolerations = template.Tolerations
	pod.HostAliases = template.HostAliases
	if template.TopologySpreadConstraints != nil { // an empty list turns the default off
		pod.TopologySpreadConstraints = template.TopologySpreadConstraints
	}
	pod.ImagePullSecrets = pullSecrets(image, template.ImagePullSecrets)
}

// VolumeConflict returns the message about a volume or mount of the user that conflicts with one of the operator, or "". The API server
// would reject such a Deployment.
func VolumeConflict(pod *corev1.PodSpec) string {
	names := map[string]bool{}
	for _, volume := range pod.Volumes {
		if names[volume.Name] {
			return fmt.Sprintf("extraVolumes: a volume named %s is there already, choose another name", volume.Name)
		}
		names[volume.Name] = true
	}
	for _, container := range pod.Containers {
		paths := map[string]bool{}
		for _, mount := range container.VolumeMounts {
			at := path.Clean(mount.MountPath)
			if paths[at] {
				return fmt.Sprintf("extraVolumeMounts: something is mounted at %s already, choose another mountPath", at)
			}
			paths[at] = true
		}
	}
	return ""
}

// ContainerSecurity drops the privileges that a server does not need.
func ContainerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		SeccompProfile:           runtimeDefault(),
		ReadOnlyRootFilesystem:   ptr.To(true),
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func runtimeDefault() *corev1.SeccompProfile {
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

func httpsProbe(path string, delay, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Scheme: corev1.URISchemeHTTPS, Path: path, Port: intstr.FromString("https"),
		}},
		InitialDelaySeconds: delay, PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 10,
	}
}

// serverResources are the default resources of a shard, merged with a spec.
func serverResources(spec *corev1.ResourceRequirements) corev1.ResourceRequirements {
	return mergedResources(corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("2Gi")},
	}, spec)
}

// mergedResources merges a spec into defaults, key by key. It lowers a default request to the limit of the spec, and raises a default
// limit to the request of the spec.
func mergedResources(defaults corev1.ResourceRequirements, spec *corev1.ResourceRequirements) corev1.ResourceRequirements {
	if spec == nil {
		return defaults
	}
	for name, limit := range spec.Limits {
		if request, ok := defaults.Requests[name]; ok && request.Cmp(limit) > 0 {
			defaults.Requests[name] = limit
		}
	}
	for name, request := range spec.Requests {
		if limit, ok := defaults.Limits[name]; ok && request.Cmp(limit) > 0 {
			defaults.Limits[name] = request
		}
	}
	maps.Copy(defaults.Requests, spec.Requests)
	maps.Copy(defaults.Limits, spec.Limits)
	defaults.Claims = spec.Claims
	return defaults
}

func secretVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: ptr.To[int32](0o644)},
	}}
}

// caVolume mounts a certificate without its private key: the certificate of a CA, or one with whose key others verify tokens.
func caVolume(name, secret string) corev1.Volume {
	volume := secretVolume(name, secret)
	volume.Secret.Items = []corev1.KeyToPath{{Key: corev1.TLSCertKey, Path: corev1.TLSCertKey}}
	return volume
}

func configMapVolume(name, configMap string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, DefaultMode: ptr.To[int32](0o644),
		},
	}}
}

func readOnly(name, path string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true}
}
