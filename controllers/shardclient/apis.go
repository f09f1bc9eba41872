package shardclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"k8s.io/client-go/discovery"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ServedAPIs returns a hash of the APIs of a workspace and of their schemas. It hashes the index of the OpenAPI documents, which contains
// a hash of each document, so it reads no document.
func (c *Clients) ServedAPIs(ctx context.Context, root *operatorv1alpha1.RootShard, workspace logicalcluster.Path) (string, error) {
	config, httpClient, err := c.Connect(ctx, root, desired.InternalProxyURL(root))
	if err != nil {
		return "", err
	}
	defer httpClient.CloseIdleConnections()
	config.Host += workspace.URLPath()
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return "", fmt.Errorf("client for %s: %w", config.Host, err)
	}
	index, err := client.RESTClient().Get().AbsPath("/openapi/v3").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the APIs of workspace %s: %w", workspace, err)
	}
	hash := sha256.Sum256(index)
	return hex.EncodeToString(hash[:]), nil
}
