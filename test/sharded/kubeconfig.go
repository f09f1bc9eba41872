package sharded

import (
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// shardBase is the context that shards use in kubeconfigs of the root shard.
const shardBase = "shard-base"

// writeServerKubeconfig writes a kubeconfig for one server of the installation, in whose directory the file is, to connect to
// another as a user, and returns its file name.
func (l *Layout) writeServerKubeconfig(file, server, name string, groups ...string) (string, error) {
	pair, err := l.clients.Issue(name, groups...)
	if err != nil {
		return "", err
	}
	l.clientPairs[connection(filepath.Base(filepath.Dir(file)), server)] = clientPair{pair, l.clients, name, groups}
	return l.writeKubeconfig(file, server, name, &clientcmdapi.AuthInfo{ClientCertificate: pair.CertFile, ClientKey: pair.KeyFile})
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
