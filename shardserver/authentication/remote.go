package authentication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	kubeauthenticator "k8s.io/kubernetes/pkg/kubeapiserver/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// remoteFailureTTL is how long the refusal of a token by its own shard is cached.
	remoteFailureTTL = 10 * time.Second
	// remoteTimeout bounds one request to another shard.
	remoteTimeout = 10 * time.Second
)

// newRemoteServiceAccountAuthenticator returns the authenticator of service account tokens of logical clusters that are on
// other shards. keys are those of all shards; which of them signed a token proves nothing, so its own shard decides.
func newRemoteServiceAccountAuthenticator(stock kubeauthenticator.Config, keys serviceaccount.PublicKeysGetter, registry *storage.Registry, proxy *rest.Config) authenticator.Token {
	accepted := tokencache.New(authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		err := reviewAsBearer(ctx, proxy, token)
		return nil, err == nil, err
	}), true, 0, remoteFailureTTL)
	clusters := newClusterReader(registry)
	lookup := func(ctx context.Context, cluster logicalcluster.Name, token string) error {
		local, err := clusters.isHere(ctx, cluster)
		switch {
		case err != nil:
			return err
		case local:
			return errors.New("its logical cluster is on this shard, which does not accept it")
		case proxy == nil:
			return errors.New("its logical cluster is not on this shard, and access to other shards is not configured (--external-logical-cluster-admin-kubeconfig)")
		}
		_, _, err = accepted.AuthenticateToken(ctx, token)
		return err
	}
	return serviceaccounttokens.NewAuthenticator(stock.ServiceAccountIssuers, keys, stock.APIAudiences, lookup)
}

// reviewAsBearer returns an error unless the shard of a token authenticates it as a service account of its logical cluster.
// The token itself is the credential of the request: a shard needs no rights on others.
func reviewAsBearer(ctx context.Context, proxy *rest.Config, token string) error {
	cluster, ok := serviceaccounttokens.ClusterClaim(token)
	if !ok {
		return errors.New("it has no logical cluster")
	}
	config := rest.AnonymousClientConfig(proxy)
	config.Host = strings.TrimSuffix(config.Host, "/") + cluster.Path().URLPath()
	config.BearerToken, config.Timeout = token, remoteTimeout
	client, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client of the shard of %q: %w", cluster, err)
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking the shard of %q: %w", cluster, err)
	}
	if user := review.Status.UserInfo; !serviceaccounttokens.IsServiceAccountOf(user, cluster) {
		return fmt.Errorf("the shard of %q authenticates it as %q", cluster, user.Username)
	}
	return nil
}
