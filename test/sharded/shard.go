package sharded

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

// regions are assigned to shards in turn, as kcp's test servers do.
var regions = []string{"us-east-2", "us-east-1", "us-west-1", "eu-central-1"}

// requestHeaders are the flags for the headers in which a proxy forwards the user: to shards, and to a proxy that serves
// a mount.
var requestHeaders = []string{
	"--requestheader-allowed-names=" + proxyName, "--requestheader-username-headers=X-Remote-User",
	"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
}

func (l *Layout) shard(name string) (Server, error) {
	flags, err := l.servingFlags(name)
	if err != nil {
		return Server{}, err
	}
	directory, err := l.directory(name)
	if err != nil {
		return Server{}, err
	}
	externalKubeconfig, err := l.writeKubeconfig(filepath.Join(directory, "outside.kubeconfig"), FrontProxy, "nobody", &clientcmdapi.AuthInfo{})
	if err != nil {
		return Server{}, err
	}
	args := slices.Concat([]string{"start", "--root-directory=" + directory}, flags, embeddedEtcdFlags(), []string{
		"--root-ca-file=" + l.servers.CertFile, "--requestheader-client-ca-file=" + l.proxies.CertFile,
		"--service-account-private-key-file=" + l.SigningKey(name), "--service-account-key-file=" + l.SigningKey(name) + ".pub",
		"--shard-base-url=" + l.urls[name], "--shard-external-url=" + l.urls[FrontProxy],
		"--external-logical-cluster-admin-kubeconfig=" + externalKubeconfig,
	}, requestHeaders)
	for _, other := range l.options.Shards {
		if other != name {
			args = append(args, "--remote-service-account-key-file="+l.SigningKey(other)+".pub")
		}
	}
	cache := CacheServer
	if l.options.NoCache {
		cache = RootShard
	}
	self := shardGroup + ":" + name
	client, err := l.clients.Issue(self, shardGroup)
	if err != nil {
		return Server{}, err
	}
	args = append(args, "--shard-client-cert-file="+client.CertFile, "--shard-client-key-file="+client.KeyFile, "--shard-virtual-workspace-ca-file="+l.servers.CertFile)
	if name != RootShard {
		root, err := l.writeServerKubeconfig(filepath.Join(directory, "root.kubeconfig"), RootShard, self, shardGroup)
		if err != nil {
			return Server{}, err
		}
		args = append(args, "--shard-name="+name, "--root-shard-kubeconfig-file="+root)
	}
	if name != RootShard || !l.options.NoCache {
		kubeconfig, err := l.writeServerKubeconfig(filepath.Join(directory, "cache.kubeconfig"), cache, self, shardGroup)
		if err != nil {
			return Server{}, err
		}
		args = append(args, "--cache-kubeconfig="+kubeconfig)
	}
	if l.options.Regions {
		region := regions[slices.Index(l.options.Shards, name)%len(regions)]
		args = append(args, "--shard-labels="+tenancyv1alpha1.RegionLabelKey+"="+region+",shared=true")
	}
	return l.server(name, "kcp", append(args, l.options.ShardFlags...)), nil
}

func (l *Layout) proxy() (Server, error) {
	flags, err := l.servingFlags(FrontProxy)
	if err != nil {
		return Server{}, err
	}
	directory, err := l.directory(FrontProxy)
	if err != nil {
		return Server{}, err
	}
	pair, err := l.proxies.Issue(proxyName)
	if err != nil {
		return Server{}, err
	}
	l.clientPairs[connection(FrontProxy, "shards")] = clientPair{pair, l.proxies, proxyName, nil}
	mapping := filepath.Join(directory, "mapping.yaml")
	entry := fmt.Sprintf("backend: %s, backend_server_ca: %s, proxy_client_cert: %s, proxy_client_key: %s", l.urls[RootShard], l.servers.CertFile, pair.CertFile, pair.KeyFile)
	if err := os.WriteFile(mapping, fmt.Appendf(nil, "- {path: /clusters/, %s}\n- {path: /services/, %s}\n", entry, entry), 0o600); err != nil {
		return Server{}, err
	}
	shards, err := l.writeServerKubeconfig(filepath.Join(directory, "shards.kubeconfig"), RootShard, "proxy", masters)
	args := slices.Concat(flags, []string{
		"--mapping-file=" + mapping, "--root-kubeconfig=" + shards, "--shards-kubeconfig=" + shards, "--root-directory=" + directory,
		"--requestheader-client-ca-file=" + l.proxies.CertFile,
	}, requestHeaders, l.options.ProxyFlags)
	for _, shard := range l.options.Shards {
		args = append(args, "--service-account-key-file="+l.SigningKey(shard)+".pub")
	}
	return l.server(FrontProxy, proxyName, args), err
}
