package etcd

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/version"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/etcdmember"
)

const (
	dataVolume = "data"
	// recordMount is where a member reads the record of the bootstrap.
	recordMount = "/etc/etcd/cluster"
	// user of the image; volumes are writable for its group.
	user int64 = 65532
)

func (c Cluster) labels() map[string]string {
	return desired.AppLabels(desired.ComponentEtcd, c.owner.Name)
}

func (c Cluster) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: c.owner.Namespace, Labels: c.labels(), OwnerReferences: c.owner.References}
}

// RecordConfigMap holds the record of the bootstrap, which members read when they start.
func (c Cluster) RecordConfigMap(record etcdmember.Record) *corev1.ConfigMap {
	record.Endpoints = c.connection().Servers
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: c.meta(c.Record()), Data: record.Data()}
}

// Services are the headless Service with the names of members, ready or not, and the Service of clients.
func (c Cluster) Services() []*corev1.Service {
	port := func(name string, number int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromString(name), Protocol: corev1.ProtocolTCP}
	}
	service := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		spec.Selector = c.labels()
		return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: c.meta(name), Spec: spec}
	}
	return []*corev1.Service{
		service(c.Name(), corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: corev1.ClusterIPNone,
			// Members resolve each other before any of them is ready.
			PublishNotReadyAddresses: true,
			Ports:                    []corev1.ServicePort{port("client", clientPort), port("peer", peerPort)},
		}),
		service(c.clientService(), corev1.ServiceSpec{
			Type:  corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{port("client", clientPort)},
		}),
	}
}

// DisruptionBudget lets a drain evict one member at a time. A single member has none, because it would only block the drain.
func (c Cluster) DisruptionBudget() *policyv1.PodDisruptionBudget {
	if c.members < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: c.meta(c.Name()),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             ptr.To(intstr.FromInt32(1)),
			Selector:                   &metav1.LabelSelector{MatchLabels: c.labels()},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}

// StatefulSet is the StatefulSet of the members. All start in parallel: none is ready before a quorum runs.
func (c Cluster) StatefulSet(image desired.Image) *appsv1.StatefulSet {
	out := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: c.meta(c.Name()),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            ptr.To(c.members),
			ServiceName:         c.Name(),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Selector:            &metav1.LabelSelector{MatchLabels: c.labels()},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: c.whenDeleted(),
				WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: c.labels()},
				Spec:       c.pod(image),
			},
		},
	}
	out.Annotations = map[string]string{versionAnnotation: version.Version + startProtocol}
	if c.storage.EmptyDir == nil {
		out.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Name: dataVolume, Labels: c.claimLabels()},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: c.storage.StorageClassName,
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *c.storage.Size}},
			},
		}}
	}
	return out
}

// whenDeleted is the retention policy of the volumes. Unless retained, they are deleted with the owner, like all its objects.
func (c Cluster) whenDeleted() appsv1.PersistentVolumeClaimRetentionPolicyType {
	if c.retainVolumes {
		return appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	return appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// LabelCARevision restarts members when their CA changes. Certificates need no restart: etcd reads them for each
// connection.
func (c Cluster) LabelCARevision(set *appsv1.StatefulSet, revisions desired.Revisions) {
	ca := c.certificates().CA
	desired.LabelRevisions(&set.Spec.Template, desired.Revisions{Secrets: map[string]string{ca: revisions.Secrets[ca]}})
}

func (c Cluster) pod(image desired.Image) corev1.PodSpec {
	names := c.certificates()
	volumes := []corev1.Volume{secretVolume("server", names.Server), secretVolume("peer", names.Peer), secretVolume("ca", names.CA)}
	// The key of the CA is not mounted. Members trust only the certificate of the CA: ca.crt of a leaf is the same for a self-signed CA,
	// and would trust more below another one.
	volumes[2].Secret.Items = []corev1.KeyToPath{{Key: corev1.TLSCertKey, Path: corev1.TLSCertKey}}
	volumes = append(volumes, corev1.Volume{Name: "record", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: c.Record()}, DefaultMode: ptr.To[int32](0o444)},
	}})
	if c.storage.EmptyDir != nil {
		volumes = append(volumes, corev1.Volume{Name: dataVolume, VolumeSource: corev1.VolumeSource{EmptyDir: c.storage.EmptyDir}})
	}
	spec := corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(user), RunAsGroup: ptr.To(user), FSGroup: ptr.To(user),
			FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		Volumes:                      volumes,
		Containers: []corev1.Container{{
			Name:            "etcd",
			Image:           image.With(c.image).String(),
			ImagePullPolicy: corev1.PullIfNotPresent,
			Command:         []string{"/etcd"},
			Args:            c.args(),
			Env: []corev1.EnvVar{
				{Name: etcdmember.RecordEnv, Value: recordMount},
				{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			},
			Ports: []corev1.ContainerPort{
				{Name: "client", ContainerPort: clientPort, Protocol: corev1.ProtocolTCP},
				{Name: "peer", ContainerPort: peerPort, Protocol: corev1.ProtocolTCP},
				{Name: "metrics", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			// A member that replays a large log may take ten minutes to start.
			StartupProbe:   httpProbe("/readyz", 2, 300),
			ReadinessProbe: httpProbe("/readyz", 5, 3),
			LivenessProbe:  httpProbe("/livez", 10, 6),
			VolumeMounts: []corev1.VolumeMount{
				{Name: dataVolume, MountPath: DataMount},
				{Name: "server", MountPath: "/etc/etcd/tls/server", ReadOnly: true},
				{Name: "peer", MountPath: "/etc/etcd/tls/peer", ReadOnly: true},
				{Name: "ca", MountPath: "/etc/etcd/tls/ca", ReadOnly: true},
				{Name: "record", MountPath: recordMount, ReadOnly: true},
			},
			SecurityContext: desired.ContainerSecurity(),
		}},
	}
	if c.image != nil {
		spec.ImagePullSecrets = c.image.ImagePullSecrets
	}
	if c.members > 1 {
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelHostname, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: c.labels()},
		}}
	}
	return spec
}

// args are the arguments of a member of a cluster of fixed size: the same for each member and each start. etcd ignores the list of
// members once it has a data directory. A member without one starts according to the record, independent of the initial state in the
// arguments (package etcdmember).
func (c Cluster) args() []string {
	const self = "$(POD_NAME)"
	host := self + "." + desired.ServiceHost(c.Name(), c.owner.Namespace, c.owner.Domain)
	return []string{
		"--name=" + self,
		"--data-dir=" + DataDirectory,
		fmt.Sprintf("--listen-client-urls=https://0.0.0.0:%d", clientPort),
		fmt.Sprintf("--advertise-client-urls=https://%s:%d", host, clientPort),
		fmt.Sprintf("--listen-peer-urls=https://0.0.0.0:%d", peerPort),
		fmt.Sprintf("--initial-advertise-peer-urls=https://%s:%d", host, peerPort),
		"--initial-cluster=" + c.InitialCluster(),
		"--initial-cluster-state=new",
		"--initial-cluster-token=" + c.owner.Namespace + "/" + c.Name(),
		// Probes have no certificate: health and metrics have a separate port, which serves no data.
		fmt.Sprintf("--listen-metrics-urls=http://0.0.0.0:%d", metricsPort),
		"--cert-file=/etc/etcd/tls/server/tls.crt",
		"--key-file=/etc/etcd/tls/server/tls.key",
		"--trusted-ca-file=/etc/etcd/tls/ca/tls.crt",
		"--client-cert-auth=true",
		"--peer-cert-file=/etc/etcd/tls/peer/tls.crt",
		"--peer-key-file=/etc/etcd/tls/peer/tls.key",
		"--peer-trusted-ca-file=/etc/etcd/tls/ca/tls.crt",
		"--peer-client-cert-auth=true",
		// Peers are authenticated by their common name. etcd does not resolve their addresses, because DNS of restarted pods may be
		// outdated.
		"--peer-cert-allowed-cn=etcd-peer",
		"--peer-skip-client-san-verification=true",
		"--tls-min-version=TLS1.2",
		// The server compacts every five minutes; this is the fallback.
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=1h",
		"--snapshot-count=10000",
		fmt.Sprintf("--quota-backend-bytes=%d", c.quotaBytes()),
		"--watch-progress-notify-interval=5s",
		"--logger=zap",
		"--log-outputs=stderr",
	}
}

func secretVolume(volume, name string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: ptr.To[int32](0o440)},
	}}
}

func httpProbe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Scheme: corev1.URISchemeHTTP, Path: path, Port: intstr.FromString("metrics"),
		}},
		PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 5,
	}
}
