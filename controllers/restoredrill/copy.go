package restoredrill

import (
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
)

const (
	// restoreName is the name of the Restore of a drill, and storeName that of its BackupStore.
	restoreName, storeName = "drill", "drill"
	// externalHostname is a name that cannot be registered: the copy has no clients.
	externalHostname = "restore-drill.invalid"
	// annotationNamespaceUID is on the objects of a drill of which the operator has a cache, with the UID of their namespace.
	annotationNamespaceUID = "operator.kcp.io/restore-drill-namespace-uid"
	// annotationSaved is on the copy of a shard, with the number of its logical clusters in the backup.
	annotationSaved = "operator.kcp.io/restore-drill-logical-clusters"
)

// newRootShard returns the copy of a RootShard. It has only what the restored data needs: nothing that reaches out of the namespace, such as
// webhooks, caches, addresses and issuers of certificates.
func newRootShard(namespace string, live *operatorv1alpha1.RootShard, saved *manifest.Manifest) *operatorv1alpha1.RootShard {
	out := &operatorv1alpha1.RootShard{
		TypeMeta: typeMeta("RootShard"), ObjectMeta: copyMeta(namespace, live.Name),
		Spec: operatorv1alpha1.RootShardSpec{
			CommonShardSpec: newCommonSpec(&live.Spec.CommonShardSpec, saved, live.Name),
			External:        operatorv1alpha1.ExternalConfig{Hostname: externalHostname, Port: 443},
			Proxy:           &operatorv1alpha1.RootShardProxySpec{Replicas: ptr.To[int32](1)},
		},
	}
	out.Annotations[operatorv1alpha1.AnnotationRestore] = restoreName
	for _, shard := range saved.Shards {
		if shard.Name == live.Name {
			out.Annotations[annotationSaved] = strconv.FormatInt(shard.LogicalClusters, 10)
		}
	}
	return out
}

// newShards returns the copies of the Shards of a backup. One that was deleted since has the settings of the RootShard.
func newShards(namespace string, root *operatorv1alpha1.RootShard, live []operatorv1alpha1.Shard, saved *manifest.Manifest) []*operatorv1alpha1.Shard {
	var out []*operatorv1alpha1.Shard
	for _, shard := range saved.Shards {
		if shard.Name == root.Name {
			continue
		}
		spec := &root.Spec.CommonShardSpec
		for i := range live {
			if live[i].Name == shard.Name {
				spec = &live[i].Spec.CommonShardSpec
			}
		}
		meta := copyMeta(namespace, shard.Name)
		meta.Annotations[annotationSaved] = strconv.FormatInt(shard.LogicalClusters, 10)
		out = append(out, &operatorv1alpha1.Shard{
			TypeMeta: typeMeta("Shard"), ObjectMeta: meta,
			Spec: operatorv1alpha1.ShardSpec{
				CommonShardSpec: newCommonSpec(spec, saved, shard.Name),
				RootShard:       operatorv1alpha1.RootShardReference{Reference: &corev1.LocalObjectReference{Name: root.Name}},
			},
		})
	}
	return out
}

// newCommonSpec returns the settings of a copy: one replica, an etcd of the operator with one member and the size of the volumes of the
// installation, and the version of the backup.
func newCommonSpec(live *operatorv1alpha1.CommonShardSpec, saved *manifest.Manifest, name string) operatorv1alpha1.CommonShardSpec {
	out := operatorv1alpha1.CommonShardSpec{
		ClusterDomain: live.ClusterDomain, Replicas: ptr.To[int32](1), Resources: live.Resources.DeepCopy(),
		Image: newImage(live.Image, saved.Installation.Version), Etcd: newEtcd(live.Etcd), ContainerExtras: newExtras(live.ContainerExtras),
	}
	for _, shard := range saved.Shards {
		if shard.Name == name {
			out.Etcd.Prefix = path.Join("/", shard.Prefix)
		}
	}
	if scheduling := schedulingOf(live.DeploymentTemplate); scheduling != nil {
		out.DeploymentTemplate = &operatorv1alpha1.DeploymentTemplate{Spec: &operatorv1alpha1.DeploymentSpecTemplate{Template: &operatorv1alpha1.PodTemplate{Spec: &operatorv1alpha1.PodSpecTemplate{
			NodeSelector: scheduling.NodeSelector, Tolerations: scheduling.Tolerations, ImagePullSecrets: scheduling.ImagePullSecrets,
		}}}}
	}
	return out
}

// schedulingOf returns the settings of the pods of a Deployment, or nil.
func schedulingOf(template *operatorv1alpha1.DeploymentTemplate) *operatorv1alpha1.PodSpecTemplate {
	if template == nil || template.Spec == nil || template.Spec.Template == nil {
		return nil
	}
	return template.Spec.Template.Spec.DeepCopy()
}

// newImage returns an image with the tag of the backup: a restore wants the version that was saved.
func newImage(live *operatorv1alpha1.ImageSpec, saved string) *operatorv1alpha1.ImageSpec {
	out := live.DeepCopy()
	if out == nil {
		out = &operatorv1alpha1.ImageSpec{}
	}
	if image, err := desired.ParseImage(saved); err == nil {
		if out.Repository == "" || strings.Contains(out.Repository+image.Repository, "@") { // a digest goes with its repository
			out.Repository = image.Repository
		}
		out.Tag = image.Tag
	}
	return out
}

func newEtcd(live *operatorv1alpha1.EtcdConfig) *operatorv1alpha1.EtcdConfig {
	storage := &operatorv1alpha1.EtcdStorage{}
	if live != nil && live.Managed != nil && live.Managed.Storage != nil && live.Managed.Storage.EmptyDir == nil {
		storage = live.Managed.Storage.DeepCopy()
	}
	return &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](1), Storage: storage}}
}

// keptFlags decide how stored objects are read. Others may name servers that a copy must not ask.
var keptFlags = []string{"--encryption-provider-config", "--feature-gates"}

// withoutWebhooks keeps the controllers of a copy from asking the webhooks of workspaces.
const withoutWebhooks = "--disable-admission-plugins=apis.kcp.io/MutatingWebhook,apis.kcp.io/ValidatingWebhook"

// newExtras returns the flags without which the restored data cannot be read, and the Secret with the file that they name.
func newExtras(live operatorv1alpha1.ContainerExtras) operatorv1alpha1.ContainerExtras {
	out, file := operatorv1alpha1.ContainerExtras{ExtraArgs: []string{withoutWebhooks}}, ""
	for i, arg := range live.ExtraArgs {
		name, value, hasValue := strings.Cut(arg, "=")
		for _, flag := range keptFlags {
			if name != flag {
				continue
			}
			out.ExtraArgs = append(out.ExtraArgs, arg)
			if !hasValue && i+1 < len(live.ExtraArgs) {
				value = live.ExtraArgs[i+1]
				out.ExtraArgs = append(out.ExtraArgs, value)
			}
			if flag == keptFlags[0] {
				file = value
			}
		}
	}
	mount := mountOf(live.ExtraVolumeMounts, file)
	if mount == nil {
		return out
	}
	for _, volume := range live.ExtraVolumes {
		if volume.Name == mount.Name && volume.Secret != nil {
			out.ExtraVolumes, out.ExtraVolumeMounts = []corev1.Volume{*volume.DeepCopy()}, []corev1.VolumeMount{*mount.DeepCopy()}
		}
	}
	return out
}

// mountOf returns the mount that has a file, or nil. Others may have keys of the installation, with which a copy could act in its name.
func mountOf(mounts []corev1.VolumeMount, file string) *corev1.VolumeMount {
	var out *corev1.VolumeMount
	file = path.Clean(file)
	for i, mount := range mounts {
		directory := strings.TrimSuffix(path.Clean(mount.MountPath), "/")
		isIn := file == directory || strings.HasPrefix(file, directory+"/")
		if isIn && (out == nil || len(path.Clean(out.MountPath)) < len(directory)) { // a mount below another one hides what that has there
			out = &mounts[i]
		}
	}
	return out
}

// newStore returns the BackupStore of a drill.
func newStore(namespace string, live *operatorv1alpha1.BackupStore) *operatorv1alpha1.BackupStore {
	return &operatorv1alpha1.BackupStore{TypeMeta: typeMeta("BackupStore"), ObjectMeta: copyMeta(namespace, storeName), Spec: *live.Spec.DeepCopy()}
}

// newRestore returns the Restore of a drill.
func newRestore(drill *operatorv1alpha1.RestoreDrill, run *operatorv1alpha1.RestoreDrillRun) *operatorv1alpha1.Restore {
	return &operatorv1alpha1.Restore{
		TypeMeta: typeMeta("Restore"), ObjectMeta: copyMeta(run.Namespace, restoreName),
		Spec: operatorv1alpha1.RestoreSpec{
			RootShardRef: drill.Spec.RootShardRef, StoreRef: corev1.LocalObjectReference{Name: storeName}, BackupID: run.BackupID, ManifestDigest: run.ManifestDigest,
			Identity: drill.Spec.Identity, Source: &operatorv1alpha1.RestoreSource{Namespace: drill.Namespace}, Isolated: true,
		},
	}
}

// newNetworkPolicies isolate the pods of a namespace: they reach each other and name servers. Only the pods that restore reach the store.
func newNetworkPolicies(namespace string) []*networkingv1.NetworkPolicy {
	port := func(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: ptr.To(protocol), Port: ptr.To(intstr.FromInt32(number))}
	}
	policy := func(name string, pods map[string]string, rules ...networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}, ObjectMeta: copyMeta(namespace, name),
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: pods}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: rules,
			},
		}
	}
	const dns, dnsOfOpenShift = 53, 5353
	return []*networkingv1.NetworkPolicy{
		policy("isolated", nil,
			networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}},
			networkingv1.NetworkPolicyEgressRule{Ports: []networkingv1.NetworkPolicyPort{
				port(corev1.ProtocolUDP, dns), port(corev1.ProtocolTCP, dns), port(corev1.ProtocolUDP, dnsOfOpenShift), port(corev1.ProtocolTCP, dnsOfOpenShift),
			}}),
		policy("store", map[string]string{"app.kubernetes.io/component": desired.ComponentBackup}, networkingv1.NetworkPolicyEgressRule{}),
	}
}

// secretsOf returns the Secrets that a drill needs in its namespace, with their keys. Of pull secrets, all keys are needed: they have none here.
func secretsOf(drill *operatorv1alpha1.RestoreDrill, store *operatorv1alpha1.BackupStore, root *operatorv1alpha1.RootShard, shards []*operatorv1alpha1.Shard) map[string][]string {
	out := map[string][]string{}
	add := func(refs ...*operatorv1alpha1.SecretKeyReference) {
		for _, ref := range refs {
			if ref != nil {
				out[ref.Name] = append(out[ref.Name], ref.Key)
			}
		}
	}
	keys := &store.Spec.S3Credentials
	add(&drill.Spec.Identity, &keys.AccessKeyID, &keys.SecretAccessKey, keys.SessionToken, store.Spec.EndpointCA)
	specs := []*operatorv1alpha1.CommonShardSpec{&root.Spec.CommonShardSpec}
	for _, shard := range shards {
		specs = append(specs, &shard.Spec.CommonShardSpec)
	}
	for _, spec := range specs {
		refs := spec.Image.ImagePullSecrets
		if scheduling := schedulingOf(spec.DeploymentTemplate); scheduling != nil {
			refs = append(refs[:len(refs):len(refs)], scheduling.ImagePullSecrets...)
		}
		for _, ref := range refs {
			if _, found := out[ref.Name]; !found {
				out[ref.Name] = nil
			}
		}
	}
	return out
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: operatorv1alpha1.SchemeGroupVersion.String(), Kind: kind}
}

// copyMeta is the metadata of an object of a drill. The deletion of its namespace confirms that its data is not needed.
func copyMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{operatorv1alpha1.AnnotationForceDelete: "true"}}
}
