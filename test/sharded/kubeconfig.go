package sharded

import (
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// shardBase is the context that shards use in kubeconfigs of the root shard.
const shardBase = "shard-base"

// writeServerKubeconfig writes a kubeconfig for one server of the installation to connect to another as a user, and returns its
// file name.
func (l *Layout) writeServerKubeconfig(file, server, name string, groups ...string) (string, error) {
	config, err := l.Client("", name, groups...)
	if err != nil {
		return "", err
	}
	return l.writeKubeconfig(file, server, name, authInfo(config))
}

// writeKubeconfig is writeServerKubeconfig with given credentials.
func (l *Layout) writeKubeconfig(file, server, name string, credentials *clientcmdapi.AuthInfo) (string, error) {
	url := l.urls[server]
	if relay := l.options.Relays[server]; relay != "" {
		url = "https://" + relay
	}
	return file, clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: shardBase,
		Clusters:       map[string]*clientcmdapi.Cluster{shardBase: {Server: url, CertificateAuthority: l.servers.CertFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: credentials},
		Contexts:       map[string]*clientcmdapi.Context{shardBase: {Cluster: shardBase, AuthInfo: name}},
	}, file)
}

func authInfo(config *rest.Config) *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{ClientCertificate: config.CertFile, ClientKey: config.KeyFile}
}

// writeAdminKubeconfig writes the developer's kubeconfig. Its certificates are embedded, so that it can be copied.
func (l *Layout) writeAdminKubeconfig() error {
	admin, err := l.Admin()
	if err != nil {
		return err
	}
	direct, err := l.Masters(RootShard)
	if err != nil {
		return err
	}
	cluster := func(url string) *clientcmdapi.Cluster {
		return &clientcmdapi.Cluster{Server: url, CertificateAuthority: l.servers.CertFile}
	}
	config := clientcmdapi.Config{
		CurrentContext: "root",
		Clusters: map[string]*clientcmdapi.Cluster{
			"base": cluster(admin.Host), "root": cluster(admin.Host + "/clusters/root"), shardBase: cluster(direct.Host),
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{adminName: authInfo(admin), "shard-admin": authInfo(direct)},
		Contexts: map[string]*clientcmdapi.Context{
			"base": {Cluster: "base", AuthInfo: adminName}, "root": {Cluster: "root", AuthInfo: adminName},
			shardBase: {Cluster: shardBase, AuthInfo: "shard-admin"},
		},
	}
	if err := clientcmdapi.FlattenConfig(&config); err != nil {
		return err
	}
	l.Kubeconfig = filepath.Join(l.options.Directory, "admin.kubeconfig")
	return clientcmd.WriteToFile(config, l.Kubeconfig)
}
