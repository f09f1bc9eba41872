package replica

import (
	"testing"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
)

// Field names that differ only in case do not override the annotations that a cache sets.
func TestDecodeMatchesFieldNamesExactly(t *testing.T) {
	resource, ok := client.FindResource(logicalClusterRequests)
	if !ok {
		t.Fatal("there is no resource of requests")
	}
	obj, err := decode(resource, []byte(`{
		"apiVersion": "sharding.kcp.io/v1alpha1", "kind": "LogicalClusterRequest",
		"metadata": {
			"annotations": {"kcp.io/cluster": "abc", "kcp.io/shard": "mallory"},
			"annotation\u017f": {"kcp.io/shard": "beta"},
			"name": "ws.def"
		}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := obj.(*shardingv1alpha1.LogicalClusterRequest).Annotations[client.ShardAnnotation]; got != "mallory" {
		t.Errorf("the shard of the request is %q", got)
	}
}

func TestDecodeRejectsAnotherKind(t *testing.T) {
	resource, ok := client.FindResource(clusterRoles)
	if !ok {
		t.Fatal("there is no resource of roles")
	}
	for kind, wantErr := range map[string]bool{"ClusterRole": false, "ClusterRoleBinding": true, "ClusterRoleList": true} {
		raw := `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "` + kind + `", "metadata": {"name": "x"}}`
		if _, err := decode(resource, []byte(raw)); (err != nil) != wantErr {
			t.Errorf("%s among the roles: %v", kind, err)
		}
	}
}
