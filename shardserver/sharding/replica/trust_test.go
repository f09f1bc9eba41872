package replica

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestTrusts(t *testing.T) {
	workspace := logicalcluster.MustParseName("one")
	for name, tc := range map[string]struct {
		resource schema.GroupResource
		shard    string
		cluster  logicalcluster.Name
		want     bool
	}{
		"a migration of the root shard":                  {migrations, "root", workspace, true},
		"a migration in root":                            {migrations, "root", logicalcluster.Root, true},
		"a migration of another shard":                   {migrations, "beta", workspace, false},
		"a migration of another shard in root":           {migrations, "beta", logicalcluster.Root, false},
		"a report on a migration":                        {migrationReports, "beta", workspace, true},
		"a report on a migration in root":                {migrationReports, "beta", logicalcluster.Root, true},
		"a count of workspaces":                          {workspaceCounts, "beta", workspace, true},
		"a count of workspaces in root":                  {workspaceCounts, "beta", logicalcluster.Root, true},
		"a policy of claims of the root shard":           {claimPolicies, "root", logicalcluster.Root, true},
		"a policy of claims of the root shard elsewhere": {claimPolicies, "root", workspace, false},
		"a policy of claims of another shard":            {claimPolicies, "beta", logicalcluster.Root, false},
	} {
		t.Run(name, func(t *testing.T) {
			inf := &Informer{cfg: Config{Root: "root"}}
			object := &client.Object{Key: client.Key{Shard: tc.shard, Cluster: tc.cluster, Name: "x"}}
			if got := inf.trusts(tc.resource, object); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
