package apiexport

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// warrantUser is the user in warrants for the logical cluster of a consumer. No such service account exists.
const warrantUser = "system:serviceaccount:default:rest"

// withWarrant returns the caller, as admission and audit see it, with a warrant for the logical cluster of a consumer and
// no other. The request was authorized by the binding; RBAC of the consumer does not apply.
func withWarrant(caller user.Info, cluster logicalcluster.Name) (user.Info, error) {
	warrant, err := json.Marshal(authorization.Warrant{
		User:   warrantUser,
		Groups: []string{authorization.GroupAdmin},
		Extra:  map[string][]string{authorization.ClusterNameExtraKey: {cluster.String()}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a warrant: %w", err)
	}
	extra := maps.Clone(caller.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[authorization.WarrantExtraKey] = append(slices.Clone(extra[authorization.WarrantExtraKey]), string(warrant))
	return &user.DefaultInfo{Name: caller.GetName(), UID: caller.GetUID(), Groups: caller.GetGroups(), Extra: extra}, nil
}
