package requester

import (
	"context"
	"maps"
	"strconv"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// impersonationKey is the extra key of marked users. Audit events show it.
const impersonationKey = "authentication.atoll.dev/impersonation"

// marked is a requester with a value of its own for each request. The stock impersonation filter remembers for some seconds
// which user may impersonate which other, without the logical cluster: a decision in the workspace of one tenant would
// count in all others, and in virtual workspaces. What it remembers, it finds by all that the user has: with a mark, only
// for the same request.
type marked struct {
	user.Info
	number uint64
}

func mark(u user.Info, number uint64) user.Info { return marked{u, number} }

// GetExtra implements user.Info.
func (m marked) GetExtra() map[string][]string {
	extra := maps.Clone(m.Info.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[impersonationKey] = []string{strconv.FormatUint(m.number, 10)}
	return extra
}

// Unmark returns an authorizer that passes marked users on as they were authenticated.
func Unmark(delegate authorizer.UnconditionalAuthorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if m, ok := attributes.GetUser().(marked); ok {
			attributes = unmarkedAttributes{attributes, m.Info}
		}
		return delegate.Authorize(ctx, attributes)
	})
}

type unmarkedAttributes struct {
	authorizer.Attributes
	user user.Info
}

func (a unmarkedAttributes) GetUser() user.Info { return a.user }
