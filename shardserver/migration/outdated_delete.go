package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// outdatedPath is where administrators of a shard list and delete the content of logical clusters that another shard has got since the backup. It is
	// below /debug, which exists for the whole shard only.
	outdatedPath = "/debug/logicalclusters/outdated"
	// withoutHolder is the parameter with which content is deleted that no shard has.
	withoutHolder = "withoutHolder"
)

// outdatedList is the answer to GET.
type outdatedList struct {
	Items []outdatedItem `json:"items"`
}

// outdatedItem is a logical cluster of which this shard has content of before it was handed over.
type outdatedItem struct {
	Name string `json:"name"`
	// Holder is the shard that had the logical cluster when this one learned of the hand-over again, at Since.
	Holder string `json:"holder"`
	Since  string `json:"since"`
}

// InstallOutdated serves what restored shards have of logical clusters that others have got since.
func (m *Migrations) InstallOutdated(pathMux *mux.PathRecorderMux, serializer runtime.NegotiatedSerializer) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		response, err := m.outdated.serve(req)
		if err != nil {
			responsewriters.ErrorNegotiated(err, serializer, corev1alpha1.SchemeGroupVersion, w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(response) // the client has gone
	})
	pathMux.Handle(outdatedPath, handler)
	pathMux.HandlePrefix(outdatedPath+"/", handler)
}

// serve answers a request, or returns an error that is an API status. Nobody gets by a role what deletes content of tenants behind their API.
func (o *outdatedService) serve(req *http.Request) (any, error) {
	ctx := req.Context()
	if caller, ok := request.UserFrom(ctx); !ok || !slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, apierrors.NewForbidden(logicalClusters, "", fmt.Errorf("only the group %s may see and delete outdated logical clusters", user.SystemPrivilegedGroup))
	}
	name := strings.Trim(strings.TrimPrefix(req.URL.Path, outdatedPath), "/")
	switch {
	case name == "" && req.Method == http.MethodGet:
		return o.list(ctx)
	case name == "" || req.Method != http.MethodDelete:
		return nil, apierrors.NewMethodNotSupported(logicalClusters, strings.ToLower(req.Method))
	}
	cluster, err := logicalcluster.ParseName(name)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not the name of a logical cluster", name))
	}
	var anyway bool
	switch value := req.URL.Query().Get(withoutHolder); value {
	case "", "false":
	case "true":
		anyway = true
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: got %q, expected true or false", withoutHolder, value))
	}
	return o.delete(ctx, cluster, anyway)
}

func (o *outdatedService) list(ctx context.Context) (outdatedList, error) {
	all, err := o.clusters.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return outdatedList{}, asStatus(fmt.Errorf("listing the logical clusters: %w", err))
	}
	list := outdatedList{Items: []outdatedItem{}}
	for _, cluster := range all {
		if since, outdated := cluster.Annotations[corev1alpha1.OutdatedAnnotationKey]; outdated {
			list.Items = append(list.Items, outdatedItem{logicalcluster.Of(cluster).String(), cluster.Annotations[corev1alpha1.MovedToAnnotationKey], since})
		}
	}
	slices.SortFunc(list.Items, func(a, b outdatedItem) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// refuse returns the status of a deletion that would lose something now.
func refuse(name logicalcluster.Name, format string, args ...any) error {
	return apierrors.NewConflict(logicalClusters, name.String(), fmt.Errorf(format, args...))
}

// delete deletes the keys of an outdated logical cluster, the LogicalCluster last, so that it can be repeated. It asks the shard that has the logical
// cluster before: nothing else proves that this is not the only copy.
func (o *outdatedService) delete(ctx context.Context, name logicalcluster.Name, anyway bool) (metav1.Status, error) {
	deleted, holder, err := o.deleteUnlessNeeded(ctx, name, anyway)
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, errConflict), errors.Is(err, transfer.ErrFenced):
		return metav1.Status{}, refuse(name, "it changes at the same time: repeat the request")
	case err != nil && ctx.Err() != nil && !errors.As(err, &status):
		return metav1.Status{}, apierrors.NewTimeoutError(fmt.Sprintf("%d keys were deleted: repeat the request to delete the others", deleted), 1)
	case err != nil:
		return metav1.Status{}, asStatus(err)
	}
	klog.FromContext(ctx).Info("Deleted the outdated content of a logical cluster for an administrator", "cluster", name, "holder", holder, "keys", deleted)
	message := fmt.Sprintf("%d keys were deleted; shard %q has the logical cluster", deleted, holder)
	if holder == "" {
		message = fmt.Sprintf("%d keys were deleted; no shard has the logical cluster", deleted)
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusOK, Message: message,
		Details: &metav1.StatusDetails{Group: logicalClusters.Group, Kind: logicalClusters.Resource, Name: name.String()},
	}, nil
}

// deleteUnlessNeeded returns how many keys it has deleted, also after an error, and which shard has the logical cluster.
func (o *outdatedService) deleteUnlessNeeded(ctx context.Context, name logicalcluster.Name, anyway bool) (deleted int, holder string, err error) {
	stored, err := o.deletable(ctx, name)
	if err != nil {
		return 0, "", err
	}
	found, err := o.findHolder(ctx, name, stored)
	switch {
	case err != nil:
		return 0, "", err
	case found != nil:
		holder = found.Holder
		if stored, err = o.awaitParent(ctx, name, stored, found); err != nil {
			return 0, holder, err
		}
	case !anyway:
		return 0, "", refuse(name, "no other shard has it: this content may be the only copy. If its workspace was deleted, or you give it up, repeat the request with ?%s=true", withoutHolder)
	}
	storages, err := o.cfg.Scan(ctx)
	if err != nil {
		return 0, holder, fmt.Errorf("finding the storages: %w", err)
	}
	deleted, err = deleteAll(ctx, o.transfer, o.stored, name, stored, storages)
	return deleted, holder, err
}

// deletable returns the LogicalCluster of an outdated logical cluster whose content nothing on this shard needs.
func (o *outdatedService) deletable(ctx context.Context, name logicalcluster.Name) (*storedCluster, error) {
	if o.cfg.Held() || !o.cfg.Fence.IsConfirmed() {
		return nil, refuse(name, "the restore of this shard is not released: look at what the other shards have, and release it first")
	}
	stored, err := o.stored.get(ctx, name)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return nil, apierrors.NewNotFound(logicalClusters, name.String())
	}
	annotations := stored.annotations()
	if _, outdated := annotations[corev1alpha1.OutdatedAnnotationKey]; !outdated || movestate.Of(annotations) != movestate.MovedAway {
		return nil, refuse(name, "it is not outdated: this shard serves it, or a migration of it has not ended")
	}
	if err := o.migrations.CheckSynced(); err != nil && !o.isHome {
		return nil, err
	}
	all, err := o.allMigrations(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the migrations: %w", err)
	}
	for _, migration := range all {
		if migration.Spec.LogicalCluster == name.String() && !hasEnded(migration) {
			return nil, refuse(name, "migration %q of it has not ended: wait for that, or delete it", Reference(logicalcluster.Of(migration), migration.Name))
		}
	}
	return stored, nil
}
