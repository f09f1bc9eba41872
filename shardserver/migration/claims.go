package migration

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// maxClaimsPerResponse bounds a response.
const maxClaimsPerResponse = 5000

// claimsRequest requests the logical clusters that a shard has received from the requesting shard, directly or by way of others.
type claimsRequest struct {
	// After is the last logical cluster of the previous response, or a text after which the response begins.
	After string `json:"after,omitempty"`
}

type claimsResponse struct {
	// Claims are in the order of the names of their logical clusters.
	Claims []claim `json:"claims"`
	// More is whether there are further ones after the last.
	More bool `json:"more,omitempty"`
	// Confirmed is false while the shard is restored, and does not know yet which of its logical clusters other shards have got since the backup.
	Confirmed bool `json:"confirmed,omitempty"`
}

// claim is a logical cluster that a shard has got from another one.
type claim struct {
	Cluster string    `json:"cluster"`
	UID     types.UID `json:"uid"`
	// Holder is the shard that has the logical cluster now: the one that answers, or the one to which it has handed it over.
	Holder string `json:"holder"`
	// ParentShard is the shard that has the Workspace, as the answering shard knows.
	ParentShard string `json:"parentShard,omitempty"`
	// Epoch and MAC are those of the receipt of the requesting shard.
	Epoch int64  `json:"epoch"`
	MAC   string `json:"mac"`
}

// claimsPath is the path of the request, which is for no logical cluster in particular.
func claimsPath() string {
	return path.Join("/services", workspaceName, "clusters", logicalcluster.Root.String(), "claims")
}

// serveClaims answers a request for claims. The response contains only what the requesting shard has handed over itself.
func (o *originService) serveClaims(req *http.Request) (claimsResponse, error) {
	asking, ok := callingShard(req.Context())
	if !ok {
		return claimsResponse{}, apierrors.NewForbidden(migrationv1alpha1.Resource("logicalclustermigrations"), "", errors.New("only a shard can ask for what it has handed over"))
	}
	wanted, err := decode[claimsRequest](req)
	if err != nil {
		return claimsResponse{}, err
	}
	confirmed := o.cfg.Fence.IsConfirmed() // before the list, which then has what was found to be outdated
	all, err := o.clusters.List(logicalcluster.With(req.Context(), logicalcluster.Wildcard), "", nil)
	if err != nil {
		return claimsResponse{}, fmt.Errorf("listing the logical clusters: %w", err)
	}
	response := claimsFor(all, asking, o.cfg.Shard, wanted.After)
	response.Confirmed = confirmed
	return response, nil
}

// claimsFor returns what this shard has received from the requesting one. If it has handed a logical cluster over, it claims that for the next
// shard, which may not have opened it yet.
func claimsFor(all []*corev1alpha1.LogicalCluster, asking, shard, after string) claimsResponse {
	var claims []claim
	for _, cluster := range all {
		value, has := cluster.Annotations[corev1alpha1.ReceiptsAnnotationKey]
		name := logicalcluster.Of(cluster).String()
		if !has || name <= after || !strings.Contains(value, asking) || movestate.Of(cluster.Annotations) == movestate.Arriving {
			continue
		}
		if signed, found := receiptOf(value, asking); found {
			holder, parent := cmp.Or(cluster.Annotations[corev1alpha1.MovedToAnnotationKey], shard), cmp.Or(cluster.Annotations[corev1alpha1.OwnerShardAnnotationKey], shard)
			claims = append(claims, claim{Cluster: name, UID: cluster.UID, Holder: holder, ParentShard: parent, Epoch: signed.Epoch, MAC: signed.MAC})
		}
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.Cluster, b.Cluster) })
	if len(claims) > maxClaimsPerResponse {
		return claimsResponse{Claims: claims[:maxClaimsPerResponse], More: true}
	}
	return claimsResponse{Claims: claims}
}

// isOutdated reports whether a claim proves that this shard has handed over a logical cluster that it has stored: it has signed the receipt, and its
// etcd is older than the receipt. A claim does not prove this for a logical cluster that has come back since, which has a later epoch.
func isOutdated(shard string, secret []byte, stored *storedCluster, c claim) bool {
	name, err := logicalcluster.ParseName(c.Cluster)
	if err != nil || belongsToShard(name) || c.Holder == "" || c.Holder == shard || stored == nil || stored.uid() != string(c.UID) {
		return false
	}
	annotations := stored.annotations()
	return !movestate.Of(annotations).IsHidden() && epochOf(annotations) < c.Epoch && isSigned(secret, name, c.UID, c.Epoch, c.MAC)
}
