package desired

import (
	"crypto/sha256"
	"crypto/sha3"
	"encoding/hex"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Mounts are the names of the Secrets and ConfigMaps that a pod cannot start without, sorted.
type Mounts struct {
	Secrets, ConfigMaps []string
	// startupKeys has the keys of Secrets that servers read only at startup. For a Secret that is not in it, these are all keys.
	startupKeys map[string][]string
}

// Revision hashes the part of a Secret that a server reads only at startup: a change restarts the pods. It is "" for a Secret that the
// server reloads.
func (m Mounts) Revision(secret *corev1.Secret) string {
	keys, known := m.startupKeys[secret.Name]
	if !known {
		return SecretRevision(secret)
	}
	data := map[string][]byte{}
	for _, key := range keys {
		data[key] = secret.Data[key]
	}
	if len(data) == 0 {
		return ""
	}
	return contentHash(data)
}

// PodMounts returns the Secrets and ConfigMaps that a pod mounts, without optional sources.
func PodMounts(pod *corev1.PodSpec) Mounts {
	secrets, configMaps := map[string]bool{}, map[string]bool{}
	// The API server rejects a source without a name.
	add := func(names map[string]bool, name string, optional *bool) {
		if name != "" && (optional == nil || !*optional) {
			names[name] = true
		}
	}
	for _, volume := range pod.Volumes {
		if s := volume.Secret; s != nil {
			add(secrets, s.SecretName, s.Optional)
		}
		if c := volume.ConfigMap; c != nil {
			add(configMaps, c.Name, c.Optional)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if s := source.Secret; s != nil {
				add(secrets, s.Name, s.Optional)
			}
			if c := source.ConfigMap; c != nil {
				add(configMaps, c.Name, c.Optional)
			}
		}
	}
	return Mounts{Secrets: slices.Sorted(maps.Keys(secrets)), ConfigMaps: slices.Sorted(maps.Keys(configMaps)), startupKeys: startupKeysBySecret(pod)}
}

// Revisions are content hashes of mounted objects by name.
type Revisions struct{ Secrets, ConfigMaps map[string]string }

// LabelRevisions sets one label for each mounted object on the pods, so that the Deployment replaces them when its content changes.
// Objects without a revision have no label. The keys are those of existing installations; the values are hashes of the content and not a
// resourceVersion, so that a new label on a Secret, or a restored backup, does not restart servers.
func LabelRevisions(template *corev1.PodTemplateSpec, revisions Revisions) {
	labels := map[string]string{}
	for name, revision := range revisions.Secrets {
		if revision == "" {
			continue
		}
		labels["operator.kcp.io/secret-"+nameHash(name)+"-rev"] = revision
	}
	for name, revision := range revisions.ConfigMaps {
		labels["operator.kcp.io/configmap-"+nameHash(name)+"-rev"] = revision
	}
	template.Labels = mergeMaps(template.Labels, labels)
}

// SecretRevision hashes a Secret's content.
func SecretRevision(secret *corev1.Secret) string { return contentHash(secret.Data) }

// ConfigMapRevision hashes a ConfigMap's content.
func ConfigMapRevision(configMap *corev1.ConfigMap) string {
	data := map[string][]byte{}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, configMap.BinaryData)
	return contentHash(data)
}

// nameHash shortens an object name to fit into a label key.
func nameHash(name string) string {
	sum := sha3.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:20]
}

func contentHash(data map[string][]byte) string {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		// Each part is hashed to a fixed length, so that the boundaries between parts are unambiguous.
		k, v := sha256.Sum256([]byte(key)), sha256.Sum256(data[key])
		hash.Write(k[:])
		hash.Write(v[:])
	}
	return hex.EncodeToString(hash.Sum(nil))[:20]
}
