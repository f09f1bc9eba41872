package registry

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// IsLoopbackRequest reports whether a request comes from the shard's own controllers over the in-memory listener. It is
// used as Kind.KeepStatus and Kind.KeepStatusOnUpdate, so that controllers can write spec and status in one request.
func IsLoopbackRequest(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && u.GetName() == user.APIServerUser && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
