package authentication

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/issuers"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// workspaceTokenAuthenticator authenticates tokens of the issuers that the type of the request's workspace configures.
// The configuration is read from the watch cache for each token, so that changes take effect immediately, for existing
// workspaces, too.
type workspaceTokenAuthenticator struct {
	types          *workspacetype.Resolver
	configurations *storage.Reader[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration]
	authenticators *issuers.Authenticators
}

// newWorkspaceTokenAuthenticator reads only the watch cache and replicas of other shards: the client is not
// authenticated yet and must not be able to cause reads from etcd.
func newWorkspaceTokenAuthenticator(registry *storage.Registry, types *workspacetype.Index, authenticators *issuers.Authenticators) authenticator.Token {
	return &workspaceTokenAuthenticator{
		types: workspacetype.NewResolver(workspacetype.NewCachedReader(registry, types)),
		configurations: storage.NewReader[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration](registry,
			tenancyv1alpha1.Resource("workspaceauthenticationconfigurations")).Global(),
		authenticators: authenticators,
	}
}

// AuthenticateToken implements authenticator.Token. The result depends on the logical cluster of the context, so it
// must not be cached by token.
func (t *workspaceTokenAuthenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() || cluster.IsSystem() {
		return nil, false, nil
	}
	if _, ok := issuers.UnverifiedIssuer(token); !ok {
		return nil, false, nil
	}
	accepted, err := t.issuersFor(ctx, cluster)
	if err != nil {
		return nil, false, fmt.Errorf("finding the issuers of logical cluster %q: %w", cluster, err)
	}
	return t.authenticators.Authenticate(ctx, cluster, accepted, token)
}

// issuersFor returns the issuers of a logical cluster. Types and configurations that do not exist have none.
func (t *workspaceTokenAuthenticator) issuersFor(ctx context.Context, cluster logicalcluster.Name) ([]tenancyv1alpha1.JWTAuthenticator, error) {
	workspaceType, err := t.types.GetByCluster(ctx, cluster)
	if errors.Is(err, workspacetype.ErrUnresolvable) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var accepted []tenancyv1alpha1.JWTAuthenticator
	for _, ref := range workspaceType.Spec.AuthenticationConfigurations {
		configuration, err := t.configurations.Get(logicalcluster.With(ctx, workspaceType.Cluster), "", ref.Name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		accepted = append(accepted, configuration.Spec.JWT...)
	}
	return accepted, nil
}
