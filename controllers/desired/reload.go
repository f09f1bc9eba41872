package desired

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// reloadedCertificatePaths are the mount paths of certificates that servers reload: the serving certificate, and client certificates.
// Servers read no other keys of such a Secret.
var reloadedCertificatePaths = []string{
	shardTLS + "/server", shardTLS + "/client", shardTLS + "/logical-cluster-admin",
	proxyDir + "/tls", proxyDir + "/requestheader-client", proxyDir + "/kubeconfig-client-cert",
	cacheDir + "/tls/server", cacheDir + "/tls/client-certificate", cacheParentDir + "/client-certificate",
}

// reloadedClientCAPaths are the mount paths of client CAs, which servers also reload.
var reloadedClientCAPaths = []string{
	shardTLS + "/ca/client", shardTLS + "/ca/requestheader-client", proxyDir + "/client-ca",
}

// etcdCredentialPaths are the mount paths of client certificates for etcd. Servers read them for each connection, but the CA only once.
var etcdCredentialPaths = []string{"/etc/etcd/tls", cacheDir + "/etcd", shardIndexDir, proxyIndexDir}

// reloadingCommands are the commands that are known to reload files. For other commands, every change of a file restarts the pods.
var reloadingCommands = []string{"/kcp", "/kcp-front-proxy", "/cache-server", "/virtual-workspaces"}

// startupKeys returns the keys of the Secret mounted at a path that a server reads only at startup. all is true for an unknown path.
func startupKeys(container *corev1.Container, path string) (keys []string, all bool) {
	switch {
	case len(container.Command) == 0 || !slices.Contains(reloadingCommands, container.Command[0]):
		return nil, true
	case slices.Contains(reloadedCertificatePaths, path), slices.Contains(reloadedClientCAPaths, path):
		return nil, false
	case slices.Contains(etcdCredentialPaths, path):
		return []string{"ca.crt"}, false
	case isTokenKeyDir(path):
		// The server signs and verifies tokens with the key only; it does not use the certificate.
		return []string{corev1.TLSPrivateKeyKey}, false
	}
	return nil, true
}

// startupKeysBySecret returns, by name of the Secret, the keys whose change restarts a pod. It leaves out a Secret if every change of it
// restarts the pod.
func startupKeysBySecret(pod *corev1.PodSpec) map[string][]string {
	secrets := map[string]string{} // by volume
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			secrets[volume.Name] = volume.Secret.SecretName
		}
	}
	out, anyKey := map[string][]string{}, map[string]bool{}
	for i := range pod.Containers {
		for _, mount := range pod.Containers[i].VolumeMounts {
			name, ok := secrets[mount.Name]
			if !ok {
				continue
			}
			keys, all := startupKeys(&pod.Containers[i], mount.MountPath)
			if all || mount.SubPath != "" { // a file mounted by subPath is never updated
				anyKey[name] = true
			}
			out[name] = append(out[name], keys...)
		}
	}
	for name := range anyKey {
		delete(out, name)
	}
	return out
}
