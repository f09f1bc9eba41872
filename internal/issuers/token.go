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
	reservedNames = "system:"
	reservedKeys  = "kcp.io"
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

// Issuer returns the issuer claim of a token, unverified.
func Issuer(token string) (string, bool) {
	said, ok := peek(token)
	return said.Issuer, ok
}

// peek parses a token without verifying it. It returns false if it is not a JSON web token with an issuer.
func peek(token string) (claims, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, false
	}
	var said claims
	if err := json.Unmarshal(payload, &said); err != nil {
		return claims{}, false
	}
	return said, said.Issuer != ""
}

// within scopes a user to a logical cluster. The author of a configuration controls the names of its users, so they
// must not have the names or groups of system users, nor extra keys that the system evaluates.
func within(u user.Info, cluster logicalcluster.Name) (user.Info, error) {
	if u.GetName() == "" {
		return nil, errors.New("the token yields no user name")
	}
	if strings.HasPrefix(u.GetName(), reservedNames) {
		return nil, fmt.Errorf("the token yields the user name %q, and names that begin with %q belong to the system", u.GetName(), reservedNames)
	}
	groups := slices.DeleteFunc(slices.Clone(u.GetGroups()), func(group string) bool { return strings.HasPrefix(group, reservedNames) })
	extra := maps.Clone(u.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	// The front proxy forwards extra keys in headers, which are case-insensitive.
	maps.DeleteFunc(extra, func(key string, _ []string) bool { return strings.Contains(strings.ToLower(key), reservedKeys) })
	extra[scopesExtraKey] = []string{"cluster:" + cluster.String()}
	extra[clusterNameExtraKey] = []string{cluster.String()}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: append(groups, user.AllAuthenticated), Extra: extra}, nil
}
