package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// tenancyExport is the export in root that workspaces, their types and the issuers of these come from.
	tenancyExport = "tenancy.kcp.io"
	// identityRetry is how often the root shard is asked while it does not answer.
	identityRetry = 500 * time.Millisecond
)

// identity is the hash that names an exported resource over all logical clusters of a shard. It is drawn when an
// installation begins; the root shard is asked once.
type identity struct {
	client rest.Interface

	mu   sync.Mutex
	hash string
}

func newIdentity(root *rest.Config) (*identity, error) {
	config := rest.CopyConfig(root)
	config.APIPath = logicalcluster.Root.Path().URLPath() + "/apis"
	config.GroupVersion = &apisv1alpha2.SchemeGroupVersion
	config.NegotiatedSerializer = newCodecs().WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for exports at %s: %w", config.Host, err)
	}
	return &identity{client: client}, nil
}

// get returns the hash. The first answer counts until forget.
func (i *identity) get(ctx context.Context) (string, error) {
	i.mu.Lock()
	known := i.hash
	i.mu.Unlock()
	if known != "" {
		return known, nil
	}
	export := &apisv1alpha2.APIExport{}
	if err := i.client.Get().Resource("apiexports").Name(tenancyExport).Do(ctx).Into(export); err != nil {
		return "", fmt.Errorf("reading the identity of export %s from the root shard: %w", tenancyExport, err)
	}
	if export.Status.IdentityHash == "" {
		return "", errors.New("export " + tenancyExport + " of the root shard has no identity yet")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hash = export.Status.IdentityHash
	return i.hash, nil
}

// forget makes the next get ask again: a shard does not know the identity, so this may be another installation by now.
func (i *identity) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hash = ""
}

// wait returns when the identity is known, or the context ends. What keeps it waiting is logged when it changes.
func (i *identity) wait(ctx context.Context, h *health) {
	said := ""
	for {
		_, err := i.get(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		h.set(false, err)
		if err.Error() != said {
			said = err.Error()
			klog.FromContext(ctx).Error(err, "Waiting for the root shard")
		}
		select {
		case <-ctx.Done():
		case <-time.After(identityRetry):
		}
	}
}
