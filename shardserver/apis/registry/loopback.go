package registry

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// IsLoopbackRequest tells whether a request comes from the shard's own controllers, over the listener in memory. It is a
// Kind.KeepStatus, and a Kind.KeepStatusOnUpdate: an object whose status is known when the rest is written need not be
// written twice.
func IsLoopbackRequest(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && u.GetName() == user.APIServerUser && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
