// Package serviceaccounttokens verifies service account tokens of logical clusters that are on another server: front proxies do that for
// all, shards for those of other shards. The key that signed a token does not identify its logical cluster, because every shard has a
// key; so its own shard decides.
//
// Authentication by a shard of its own service accounts does not belong here (shardserver/authentication).
package serviceaccounttokens

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	apiserverserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// ClusterNameExtraKey is the extra with the logical cluster of a service account. Without it, a name such as
// system:serviceaccount:default:default would be valid in any logical cluster.
const ClusterNameExtraKey = "authentication.kcp.io/cluster-name"

// claims are the private claims of a service account token: those of Kubernetes and the logical cluster.
type claims struct {
	Kubernetes struct {
		ClusterName string     `json:"clusterName"`
		Namespace   string     `json:"namespace"`
		Account     reference  `json:"serviceaccount"`
		Pod         *reference `json:"pod"`
		Node        *reference `json:"node"`
	} `json:"kubernetes.io"`

	// The claims of legacy tokens, which are stored in secrets.
	LegacyCluster   string `json:"kubernetes.io/serviceaccount/clusterName"`
	LegacyNamespace string `json:"kubernetes.io/serviceaccount/namespace"`
	LegacyName      string `json:"kubernetes.io/serviceaccount/service-account.name"`
	LegacyUID       string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

type reference struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

func (c claims) cluster() string {
	if c.Kubernetes.ClusterName != "" {
		return c.Kubernetes.ClusterName
	}
	return c.LegacyCluster
}

// ClusterClaim returns the logical cluster in the claims of a service account token, without verification. It may
// select the destination of a request but must not be used for its identity.
func ClusterClaim(token string) (logicalcluster.Name, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return logicalcluster.Name{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return logicalcluster.Name{}, false
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return logicalcluster.Name{}, false
	}
	name, err := logicalcluster.ParseName(c.cluster())
	return name, err == nil
}

// ErrUnavailable indicates that the shard of a token cannot be queried at the moment.
var ErrUnavailable = errors.New("the shard of the service account does not answer")

// Lookup returns an error unless the shard of the logical cluster accepts the token: its own key signed the token, and the
// account and the object that the token is bound to exist. The signature of the token has been verified, so that clients
// cannot cause lookups with invented tokens. With a nil Lookup, a token that any of the keys signed is valid for every
// logical cluster.
type Lookup func(ctx context.Context, cluster logicalcluster.Name, token string) error

// NewAuthenticator returns an authenticator for service account tokens of all logical clusters. The issuer distinguishes
// legacy tokens from bound ones.
func NewAuthenticator(issuers []string, keys serviceaccount.PublicKeysGetter, audiences authenticator.Audiences, lookup Lookup) authenticator.Token {
	issuers = append([]string{serviceaccount.LegacyIssuer}, issuers...)
	verified := serviceaccount.JWTTokenAuthenticator[claims](issuers, keys, audiences, validator{})
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		response, ok, err := verified.AuthenticateToken(ctx, token)
		if !ok || err != nil {
			return response, ok, err
		}
		// The signature has been verified, and with it the claim.
		cluster, ok := ClusterClaim(token)
		if !ok {
			return nil, false, errors.New("service account token: no logical cluster in its claims")
		}
		if lookup != nil {
			if err := lookup(ctx, cluster, token); err != nil {
				return nil, false, fmt.Errorf("service account token of %s: %w", cluster, err)
			}
		}
		response.User = withClusterName(response.User, cluster)
		return response, true, nil
	})
}

// IsServiceAccountOf reports whether a shard has authenticated a token as one of a service account of a logical cluster. A workspace may
// have its own token issuers, whose users are not service accounts.
func IsServiceAccountOf(u authenticationv1.UserInfo, cluster logicalcluster.Name) bool {
	return strings.HasPrefix(u.Username, apiserverserviceaccount.ServiceAccountUsernamePrefix) && slices.Equal(u.Extra[ClusterNameExtraKey], []string{cluster.String()})
}

func withClusterName(u user.Info, cluster logicalcluster.Name) user.Info {
	extra := make(map[string][]string, len(u.GetExtra())+1)
	maps.Copy(extra, u.GetExtra())
	extra[ClusterNameExtraKey] = []string{cluster.String()}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// validator implements serviceaccount.Validator.
type validator struct{}

func (validator) Validate(_ context.Context, _ string, public *jwt.Claims, private *claims) (*apiserverserviceaccount.ServiceAccountInfo, error) {
	if err := public.Validate(jwt.Expected{Time: time.Now()}); err != nil {
		return nil, fmt.Errorf("service account token: %w", err)
	}
	info := &apiserverserviceaccount.ServiceAccountInfo{
		Namespace: private.Kubernetes.Namespace,
		Name:      private.Kubernetes.Account.Name,
		UID:       private.Kubernetes.Account.UID,
	}
	if public.Issuer == serviceaccount.LegacyIssuer {
		info.Namespace, info.Name, info.UID = private.LegacyNamespace, private.LegacyName, private.LegacyUID
	} else {
		if public.Expiry == nil {
			return nil, errors.New("service account token: it has no expiry, which only a legacy token may omit")
		}
		if public.ID != "" {
			info.CredentialID = tokenjwt.CredentialIDForJTI(public.ID)
		}
		if pod := private.Kubernetes.Pod; pod != nil {
			info.PodName, info.PodUID = pod.Name, pod.UID
		}
		if node := private.Kubernetes.Node; node != nil {
			info.NodeName, info.NodeUID = node.Name, node.UID
		}
	}
	if info.Namespace == "" || info.Name == "" || public.Subject != apiserverserviceaccount.MakeUsername(info.Namespace, info.Name) {
		return nil, fmt.Errorf("service account token: subject %q does not match its claims", public.Subject)
	}
	return info, nil
}
