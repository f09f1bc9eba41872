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

// warrantUser is the account whose rights a provider has in the logical cluster of a consumer. It does not exist.
const warrantUser = "system:serviceaccount:default:rest"

// withWarrant returns who acts for a caller in the logical cluster of a consumer: the caller, whom admission and the audit
// log see, with a warrant that opens this logical cluster and no other. What the consumer lets the provider do was
// decided before; RBAC of the consumer's has no say in it.
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
