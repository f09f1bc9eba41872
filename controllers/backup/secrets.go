package backup

import (
	"context"
	"errors"
	"slices"
	"strings"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/backup/config"
)

// findSecrets returns the Secrets that a restored installation needs, and that neither cert-manager nor the operator can make again: the
// certificate authorities, the keys that sign tokens of service accounts, and what users have made and servers mount.
func (s *scope) findSecrets(ctx context.Context, shards []string) ([]config.Secret, error) {
	var names []string
	names = append(names, desired.CASecret(s.root, desired.RootCA))
	for _, ca := range []desired.CA{desired.ServerCA, desired.ClientCA, desired.RequestHeaderCA, desired.ServiceAccountCA} {
		names = append(names, desired.ExistingCAs(s.root, ca)...)
	}
	for _, shard := range append([]string{s.root.Name}, shards...) {
		for _, key := range desired.TokenKeys(s.root, shard) {
			names = append(names, key.Secret())
		}
		if pending := desired.PendingTokenKey(s.root, shard); pending != nil { // a Backup may last until it signs
			names = append(names, pending.Secret())
		}
	}
	mounted, err := s.findMounted(ctx, shards)
	if err != nil {
		return nil, err
	}
	var out []config.Secret
	for _, name := range names {
		secret, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, s.root.Namespace, name)
		if err != nil {
			return nil, err
		}
		if secret != nil && len(secret.Data) > 0 {
			out = append(out, newSecret(secret))
		}
	}
	for _, name := range mounted {
		if slices.Contains(names, name) {
			continue
		}
		secret, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, s.root.Namespace, name)
		if err != nil {
			return nil, err
		}
		if secret != nil && len(secret.Data) > 0 && isOfUser(secret) {
			out = append(out, newSecret(secret))
		}
	}
	return out, nil
}

// findMounted returns the Secrets that pods of the installation mount or have in their environment, sorted.
func (s *scope) findMounted(ctx context.Context, shards []string) ([]string, error) {
	members, err := s.findMembers(ctx, shards)
	if err != nil {
		return nil, err
	}
	deployments := &appsv1.DeploymentList{}
	if err := s.config.Cluster.List(ctx, deployments, client.InNamespace(s.root.Namespace)); err != nil {
		return nil, err
	}
	var out []string
	for _, deployment := range deployments.Items {
		owner := metav1.GetControllerOf(&deployment)
		if owner != nil && strings.HasPrefix(owner.APIVersion, operatorv1alpha1.GroupName+"/") && members[owner.Kind+"/"+owner.Name] {
			out = append(out, secretsOf(&deployment.Spec.Template.Spec)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// findMembers returns "kind/name" of each object that has servers of the installation.
func (s *scope) findMembers(ctx context.Context, shards []string) (map[string]bool, error) {
	members := map[string]bool{"RootShard/" + s.root.Name: true}
	addCache := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			members["CacheServer/"+ref.Name] = true
		}
	}
	addCache(s.root.Spec.Cache.Ref)
	list := func(list client.ObjectList) error {
		return s.config.Cluster.List(ctx, list, client.InNamespace(s.root.Namespace))
	}
	all, fronts, virtual := &operatorv1alpha1.ShardList{}, &operatorv1alpha1.FrontProxyList{}, &operatorv1alpha1.VirtualWorkspaceList{}
	if err := errors.Join(list(all), list(fronts), list(virtual)); err != nil {
		return nil, err
	}
	for _, shard := range all.Items {
		if slices.Contains(shards, shard.Name) {
			members["Shard/"+shard.Name] = true
			addCache(shard.Spec.Cache.Ref)
		}
	}
	for _, front := range fronts.Items {
		if ref := front.Spec.RootShard.Reference; ref != nil && ref.Name == s.root.Name {
			members["FrontProxy/"+front.Name] = true
		}
	}
	for _, server := range virtual.Items {
		root, shard := server.Spec.Target.RootShardRef, server.Spec.Target.ShardRef
		if root != nil && root.Name == s.root.Name || shard != nil && slices.Contains(shards, shard.Name) {
			members["VirtualWorkspace/"+server.Name] = true
		}
	}
	return members, nil
}

// secretsOf returns the Secrets that a pod refers to, also those without which it would start: encrypted objects are lost without the key.
func secretsOf(pod *corev1.PodSpec) []string {
	var out []string
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			out = append(out, volume.Secret.SecretName)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				out = append(out, source.Secret.Name)
			}
		}
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, source := range container.EnvFrom {
			if source.SecretRef != nil {
				out = append(out, source.SecretRef.Name)
			}
		}
		for _, variable := range container.Env {
			if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
				out = append(out, variable.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	return out
}

// isOfUser reports whether neither cert-manager nor the operator has made a Secret.
func isOfUser(secret *corev1.Secret) bool {
	if secret.Annotations[certmanagerv1.CertificateNameKey] != "" {
		return false
	}
	return !slices.ContainsFunc(secret.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return strings.HasPrefix(ref.APIVersion, operatorv1alpha1.GroupName+"/")
	})
}

// newSecret returns a Secret for the configuration, which is no Secret: of annotations only those of cert-manager, because that of kubectl
// contains the data.
func newSecret(secret *corev1.Secret) config.Secret {
	out := config.Secret{Name: secret.Name, Type: string(secret.Type), Labels: secret.Labels}
	for key, value := range secret.Annotations {
		if group, _, _ := strings.Cut(key, "/"); group == "cert-manager.io" {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	return out
}
