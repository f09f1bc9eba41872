package apply

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// ReasonWaitingForCertificates is the reason of a result that waits for a Secret of cert-manager.
const ReasonWaitingForCertificates = "WaitingForCertificates"

// Files are the observed Secrets and ConfigMaps of one namespace by name, without those that do not exist.
type Files struct {
	Secrets    map[string]*corev1.Secret
	ConfigMaps map[string]*corev1.ConfigMap
}

// ReadFiles reads Secrets and ConfigMaps.
func (c Cluster) ReadFiles(ctx context.Context, namespace string, secrets, configMaps []string) (Files, error) {
	files := Files{Secrets: map[string]*corev1.Secret{}, ConfigMaps: map[string]*corev1.ConfigMap{}}
	for _, name := range configMaps {
		configMap, err := Get[corev1.ConfigMap](ctx, c, namespace, name)
		if err != nil {
			return files, err
		}
		if configMap != nil {
			files.ConfigMaps[name] = configMap
		}
	}
	for _, name := range secrets {
		secret, err := Get[corev1.Secret](ctx, c, namespace, name)
		if err != nil {
			return files, err
		}
		if secret != nil {
			files.Secrets[name] = secret
		}
	}
	return files, nil
}

// Add replaces an observed object by the applied one. It ignores kinds other than Secrets and ConfigMaps.
func (f Files) Add(object client.Object) {
	switch file := object.(type) {
	case *corev1.Secret:
		f.Secrets[file.Name] = file
	case *corev1.ConfigMap:
		f.ConfigMaps[file.Name] = file
	}
}

// Revisions returns the revisions of the objects that a pod mounts. missing names those that do not exist, ConfigMaps first.
func (f Files) Revisions(mounts desired.Mounts) (revisions desired.Revisions, missing []string) {
	revisions = desired.Revisions{Secrets: map[string]string{}, ConfigMaps: map[string]string{}}
	for _, name := range mounts.ConfigMaps {
		if configMap, ok := f.ConfigMaps[name]; ok {
			revisions.ConfigMaps[name] = desired.ConfigMapRevision(configMap)
		} else {
			missing = append(missing, "ConfigMap "+name)
		}
	}
	for _, name := range mounts.Secrets {
		if secret, ok := f.Secrets[name]; ok {
			revisions.Secrets[name] = mounts.Revision(secret)
		} else {
			missing = append(missing, "Secret "+name)
		}
	}
	return revisions, missing
}

// MergeBundle merges the CA certificates under the key tls.crt of the sources of a bundle, in order. A source that is
// missing or invalid is a result of the given condition type, as a status.Error.
func (f Files) MergeBundle(conditionType, namespace string, bundle desired.Bundle) ([]byte, error) {
	var parts []pki.BundlePart
	for _, name := range bundle.Sources() {
		secret, ok := f.Secrets[name]
		switch {
		case !ok && slices.Contains(bundle.OwnCAs(), name):
			return nil, status.Wait(conditionType, ReasonWaitingForCertificates, "waiting for Secret %s, which cert-manager creates", name).AsError()
		case !ok:
			return nil, status.Wait(conditionType, status.ReasonSecretNotFound, "Secret %s is missing in namespace %s: create it with CA certificates under the key tls.crt", name, namespace).AsError()
		case len(secret.Data[corev1.TLSCertKey]) == 0:
			return nil, status.Stall(conditionType, "SecretInvalid", "Secret %s has no key tls.crt: put CA certificates there, in PEM", name).AsError()
		}
		part := pki.BundlePart{Source: fmt.Sprintf("key tls.crt of Secret %s", name), PEM: secret.Data[corev1.TLSCertKey]}
		if bundle.WithoutChain && slices.Contains(bundle.OwnCAs(), name) {
			part.PEM = pki.FirstCertificate(part.PEM)
		}
		parts = append(parts, part)
	}
	merged, err := pki.MergeBundle(parts...)
	if err != nil {
		return nil, status.Stall(conditionType, "SecretInvalid", "%v", err).AsError()
	}
	return merged, nil
}

// ReadBundle reads the sources of a bundle and merges them.
func (c Cluster) ReadBundle(ctx context.Context, conditionType, namespace string, bundle desired.Bundle) ([]byte, error) {
	files, err := c.ReadFiles(ctx, namespace, bundle.Sources(), nil)
	if err != nil {
		return nil, err
	}
	return files.MergeBundle(conditionType, namespace, bundle)
}
