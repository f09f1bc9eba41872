// Package kubeconfig reads the files that name another server, and the credentials for it.
package kubeconfig

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Load returns the client configuration of a context of the file; "" is the current one. Paths in the file are relative to it.
func Load(file, context string) (*rest.Config, error) {
	loaded, err := read(file)
	if err != nil {
		return nil, err
	}
	if _, ok := loaded.Contexts[context]; context != "" && !ok {
		return nil, fmt.Errorf("%s: has contexts %s, want one called %q", file, contextNames(loaded.Contexts), context)
	}
	return clientConfig(file, loaded, &clientcmd.ConfigOverrides{CurrentContext: context})
}

// LoadForServer returns the client configuration of the current context of the file for another server than that of the file; "" is the
// file's own. Credentials are left out if that server is not secure.
func LoadForServer(file, server string) (*rest.Config, error) {
	loaded, err := read(file)
	if err != nil {
		return nil, err
	}
	return clientConfig(file, loaded, &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: server}})
}

// LoadWithoutCredentials returns the server of the current context of the file, and its CA. The files of credentials need not exist.
func LoadWithoutCredentials(file string) (*rest.Config, error) {
	loaded, err := read(file)
	if err != nil {
		return nil, err
	}
	loaded.AuthInfos = nil
	for _, each := range loaded.Contexts {
		each.AuthInfo = ""
	}
	return clientConfig(file, loaded, &clientcmd.ConfigOverrides{})
}

func read(file string) (*clientcmdapi.Config, error) {
	loaded, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}).Load()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return loaded, nil
}

func clientConfig(file string, loaded *clientcmdapi.Config, overrides *clientcmd.ConfigOverrides) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveClientConfig(*loaded, overrides.CurrentContext, overrides, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

func contextNames(contexts map[string]*clientcmdapi.Context) string {
	var all []string
	for name := range contexts {
		all = append(all, fmt.Sprintf("%q", name))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
