package issuers

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Extra keys of the users of workspace issuers.
const (
	scopesExtraKey      = "authentication.kcp.io/scopes"
	clusterNameExtraKey = "authentication.kcp.io/cluster-name"
)

const (
	reservedNamePrefix  = "system:"
	reservedExtraDomain = "kcp.io"
)

// claims are the claims of a token.
type claims struct {
	Issuer     string         `json:"iss"`
	Audiences  audiences      `json:"aud"`
	ClaimNames map[string]any `json:"_claim_names"` // of distributed claims
}

// audiences is the claim aud: one string or a list.
type audiences []string

// UnmarshalJSON accepts both forms.
func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// UnverifiedIssuer returns the issuer claim of a token, unverified.
func UnverifiedIssuer(token string) (string, bool) {
	tokenClaims, ok := parseUnverified(token)
	return tokenClaims.Issuer, ok
}

// parseUnverified parses a token without verifying it. It returns false if it is not a JSON web token with an issuer.
func parseUnverified(token string) (claims, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, false
	}
	var tokenClaims claims
	if err := json.Unmarshal(payload, &tokenClaims); err != nil {
		return claims{}, false
	}
	return tokenClaims, tokenClaims.Issuer != ""
}

// scopeUser scopes a user to a logical cluster. The author of a configuration controls the names of its users, so they
// must not have the names or groups of system users, nor extra keys that the system evaluates.
func scopeUser(u user.Info, cluster logicalcluster.Name) (user.Info, error) {
	if u.GetName() == "" {
		return nil, errors.New("the token yields no user name")
	}
	if strings.HasPrefix(u.GetName(), reservedNamePrefix) {
		return nil, fmt.Errorf("the token yields the user name %q, and names that begin with %q belong to the system", u.GetName(), reservedNamePrefix)
	}
	groups := slices.DeleteFunc(slices.Clone(u.GetGroups()), func(group string) bool { return strings.HasPrefix(group, reservedNamePrefix) })
	extra := maps.Clone(u.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	// The front proxy forwards extra keys in headers, which are case-insensitive.
	maps.DeleteFunc(extra, func(key string, _ []string) bool { return strings.Contains(strings.ToLower(key), reservedExtraDomain) })
	extra[scopesExtraKey] = []string{"cluster:" + cluster.String()}
	extra[clusterNameExtraKey] = []string{cluster.String()}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: append(groups, user.AllAuthenticated), Extra: extra}, nil
}
