package workspace

import (
	"errors"
	"fmt"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The kubeconfig entries of the plugins; both a context and a cluster may have these names.
const (
	currentEntry  = "workspace.kcp.io/current"
	previousEntry = "workspace.kcp.io/previous"
)

// copyCurrentContext returns copies of the current context and its cluster.
func copyCurrentContext(config *clientcmdapi.Config) (*clientcmdapi.Context, *clientcmdapi.Cluster, error) {
	context, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return nil, nil, fmt.Errorf("current %q context not found", config.CurrentContext)
	}
	cluster, ok := config.Clusters[context.Cluster]
	if !ok {
		return nil, nil, fmt.Errorf("cluster %q of the current context %q not found", context.Cluster, config.CurrentContext)
	}
	return context.DeepCopy(), cluster.DeepCopy(), nil
}

// switchTo returns the kubeconfig after entering the workspace at a server URL. The context in use before becomes the
// previous one; its cluster is copied only if the switch overwrites it.
func switchTo(config *clientcmdapi.Config, serverURL string) (*clientcmdapi.Config, error) {
	previous, cluster, err := copyCurrentContext(config)
	if err != nil {
		return nil, err
	}
	changed := config.DeepCopy()

	current := previous.DeepCopy()
	current.Cluster = currentEntry
	if previous.Cluster == currentEntry {
		previous.Cluster = previousEntry
		changed.Clusters[previousEntry] = cluster.DeepCopy()
	}
	cluster.Server = serverURL

	changed.Clusters[currentEntry] = cluster
	changed.Contexts[currentEntry] = current
	changed.Contexts[previousEntry] = previous
	changed.CurrentContext = currentEntry
	return changed, nil
}

// switchBack returns the kubeconfig with current and previous exchanged.
func switchBack(config *clientcmdapi.Config) (*clientcmdapi.Config, error) {
	current, currentCluster, err := copyCurrentContext(config)
	if err != nil {
		return nil, err
	}
	previous, ok := config.Contexts[previousEntry]
	if !ok {
		return nil, errors.New("no previous workspace found in kubeconfig")
	}
	previousCluster, ok := config.Clusters[previous.Cluster]
	if !ok {
		return nil, fmt.Errorf("cluster %q of the previous workspace not found in kubeconfig", previous.Cluster)
	}
	previous, previousCluster = previous.DeepCopy(), previousCluster.DeepCopy()
	changed := config.DeepCopy()

	// Contexts that use a cluster created by the user keep using it; only the plugins' own clusters are exchanged.
	if previous.Cluster == previousEntry {
		previous.Cluster = currentEntry
		changed.Clusters[currentEntry] = previousCluster
	}
	if current.Cluster == currentEntry {
		current.Cluster = previousEntry
		changed.Clusters[previousEntry] = currentCluster
	}
	changed.Contexts[currentEntry] = previous
	changed.Contexts[previousEntry] = current
	changed.CurrentContext = currentEntry
	return changed, nil
}

// namedContext is a request for a context with a name of the user's choice.
type namedContext struct {
	name        string
	serverURL   string
	overwrite   bool // replace an existing context of that name
	keepCurrent bool // do not make it the current context
}

// add returns the kubeconfig with a cluster and a context of that name, and the message for the user.
func (n namedContext) add(config *clientcmdapi.Config) (*clientcmdapi.Config, string, error) {
	context, cluster, err := copyCurrentContext(config)
	if err != nil {
		return nil, "", err
	}
	_, exists := config.Contexts[n.name]
	if exists && !n.overwrite {
		return nil, "", fmt.Errorf("context %q already exists in kubeconfig, use --overwrite to update it", n.name)
	}
	changed := config.DeepCopy()
	cluster.Server = n.serverURL
	context.Cluster = n.name
	changed.Clusters[n.name] = cluster
	changed.Contexts[n.name] = context

	line := fmt.Sprintf("Created context %q", n.name)
	if exists {
		line = fmt.Sprintf("Updated context %q", n.name)
	}
	if n.keepCurrent || config.CurrentContext == n.name {
		return changed, line + ".", nil
	}
	changed.CurrentContext = n.name
	return changed, line + " and switched to it.", nil
}
