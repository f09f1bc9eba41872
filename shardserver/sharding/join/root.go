package join

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/bootstrap/rootapis"
	"github.com/atoll-dev/atoll/shardserver/loopback"
)

// requestTimeout bounds one request to the root shard, so that it is retried.
const requestTimeout = 10 * time.Second

// Root is a client of the root shard.
type Root struct {
	// Client sends requests to the logical cluster of their context on the root shard.
	Client client.Client
}

// NewRoot returns a client of the root shard with the host of config.
func NewRoot(config *rest.Config) (*Root, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	c, err := loopback.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the root shard at %s: %w", config.Host, err)
	}
	return &Root{Client: c}, nil
}

// Identities returns the identities of all exports that storage depends on. A missing identity is an error.
func (r *Root) Identities(ctx context.Context) (Identities, error) {
	ctx = logicalcluster.With(ctx, logicalcluster.Root)
	identities := Identities{}
	for _, own := range rootapis.Exports() {
		export := &apisv1alpha2.APIExport{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: own.Name}, export); err != nil {
			return nil, fmt.Errorf("reading the identity from the root shard of export %s: %w", own.Name, err)
		}
		if export.Status.IdentityHash == "" {
			return nil, fmt.Errorf("export %s has no identity on the root shard yet", own.Name)
		}
		identities[own.Name] = export.Status.IdentityHash
	}
	return identities, nil
}
