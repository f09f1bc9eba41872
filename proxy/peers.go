package proxy

import (
	"fmt"
	"net/url"
	"slices"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/atoll-dev/atoll/proxy/shards"
)

// loadPeers returns the servers of all clusters in kubeconfigs, without duplicates and ordered by file and name, with the credentials of the
// current context of the first file.
func loadPeers(files []string) (*shards.Peers, error) {
	config, err := loadKubeconfig(files[0])
	if err != nil {
		return nil, err
	}
	peers := &shards.Peers{Config: config}
	for _, file := range files {
		loaded, err := clientcmd.LoadFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		names := make([]string, 0, len(loaded.Clusters))
		for name := range loaded.Clusters {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			server := loaded.Clusters[name].Server
			parsed, err := url.Parse(server)
			if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
				return nil, fmt.Errorf("%s: cluster %q: got the server %q, expected https://<host>[:<port>]", file, name, server)
			}
			seed := &url.URL{Scheme: parsed.Scheme, Host: parsed.Host}
			if !slices.ContainsFunc(peers.Seeds, func(known *url.URL) bool { return *known == *seed }) {
				peers.Seeds = append(peers.Seeds, seed)
			}
		}
	}
	return peers, nil
}
