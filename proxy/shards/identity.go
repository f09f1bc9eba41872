package shards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// tenancyExport is the export in root of workspaces, workspace types and authentication configurations.
	tenancyExport = "tenancy.kcp.io"
	// identityRetryInterval is the interval of requests for the identity while the root shard does not answer.
	identityRetryInterval = 500 * time.Millisecond
)

// exportIdentity is the identity hash of an export, which selects its resources over all logical clusters of a shard.
// An installation creates it once, so that it is read once.
type exportIdentity struct {
	client rest.Interface

	mu   sync.Mutex
	hash string
}

func newExportIdentity(root *rest.Config) (*exportIdentity, error) {
	config := rest.CopyConfig(root)
	config.APIPath = logicalcluster.Root.Path().URLPath() + "/apis"
	config.GroupVersion = &apisv1alpha2.SchemeGroupVersion
	config.NegotiatedSerializer = newSerializer()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for exports at %s: %w", config.Host, err)
	}
	return &exportIdentity{client: client}, nil
}

// get returns the hash. It caches the first one until invalidate.
func (i *exportIdentity) get(ctx context.Context) (string, error) {
	i.mu.Lock()
	hash := i.hash
	i.mu.Unlock()
	if hash != "" {
		return hash, nil
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

// invalidate makes get read the identity again. A shard that does not have the resource under this identity may
// belong to a new installation at the same address.
func (i *exportIdentity) invalidate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hash = ""
}

// wait returns once the identity is read, or the context ends. It logs each new reason for waiting.
func (i *exportIdentity) wait(ctx context.Context, status *resourceStatus) {
	logged := ""
	_ = wait.PollUntilContextCancel(ctx, identityRetryInterval, true, func(ctx context.Context) (bool, error) {
		_, err := i.get(ctx)
		if err == nil || ctx.Err() != nil {
			return true, nil
		}
		status.setFailure(err)
		if err.Error() != logged {
			logged = err.Error()
			klog.FromContext(ctx).Info("Waiting for the root shard", "reason", logged) // usual while an installation starts
		}
		return false, nil
	})
}
