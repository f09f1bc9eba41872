package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	apiserverserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// ClusterNameExtraKey is the extra that says which logical cluster a service account belongs to. Without it a name
// like system:serviceaccount:default:default would be the account of whatever cluster is asked.
const ClusterNameExtraKey = "authentication.kcp.io/cluster-name"

// claims are the private claims of a service account token of kcp: those of Kubernetes and the logical cluster.
type claims struct {
	Kubernetes struct {
		ClusterName string     `json:"clusterName"`
		Namespace   string     `json:"namespace"`
		Account     reference  `json:"serviceaccount"`
		Pod         *reference `json:"pod"`
		Node        *reference `json:"node"`
	} `json:"kubernetes.io"`

	// Tokens out of secrets, as they were before tokens were bound.
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

// ClusterClaim returns the logical cluster that a service account token claims to come from. Nothing is verified:
// the answer may choose where a request goes, never who sends it.
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

// Lookup confirms with the shard of the cluster that a token is still good: its account, and what it is bound to,
// exist. A nil Lookup trusts signature and expiry alone.
type Lookup func(ctx context.Context, cluster logicalcluster.Name, token string) error

// ServiceAccounts returns an authenticator of service account tokens of all logical clusters. Tokens out of secrets
// and bound tokens are told apart by their issuer.
func ServiceAccounts(issuers []string, keys serviceaccount.PublicKeysGetter, audiences authenticator.Audiences, lookup Lookup) authenticator.Token {
	issuers = append([]string{serviceaccount.LegacyIssuer}, issuers...)
	verified := serviceaccount.JWTTokenAuthenticator[claims](issuers, keys, audiences, validator{})
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		response, ok, err := verified.AuthenticateToken(ctx, token)
		if !ok || err != nil {
			return response, ok, err
		}
		// The signature is verified, so the claim is true now.
		cluster, ok := ClusterClaim(token)
		if !ok {
			return nil, false, errors.New("service account token: no logical cluster in its claims")
		}
		if lookup != nil {
			if err := lookup(ctx, cluster, token); err != nil {
				return nil, false, fmt.Errorf("service account token of %s: %w", cluster, err)
			}
		}
		response.User = ofCluster(response.User, cluster)
		return response, true, nil
	})
}

func ofCluster(u user.Info, cluster logicalcluster.Name) user.Info {
	extra := make(map[string][]string, len(u.GetExtra())+1)
	for key, values := range u.GetExtra() {
		extra[key] = values
	}
	extra[ClusterNameExtraKey] = []string{cluster.String()}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// validator turns verified claims into an account. It implements serviceaccount.Validator.
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
			return nil, errors.New("service account token: it never expires, which only a token out of a secret may")
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
