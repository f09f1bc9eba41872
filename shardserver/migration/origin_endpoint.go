package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization/requester"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// Shards authenticate with a certificate of this group, and of this user with the name of the shard.
const (
	shardGroup      = "system:kcp:shard"
	shardUserPrefix = "system:kcp:shard:"
)

// virtualWorkspace returns the virtual workspace in which a destination reads the content of a logical cluster. Only shards
// reach it, and a shard only logical clusters that an accepted migration moves to it: not even system:masters reads the
// content here, which includes all Secrets.
func (o *originService) virtualWorkspace(serializer runtime.NegotiatedSerializer) *virtual.Workspace {
	return &virtual.Workspace{
		Name:       workspaceName,
		Resolve:    resolveOrigin,
		Authorizer: shardAuthorizer{},
		Handler: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if err := o.serve(w, req); err != nil {
					responsewriters.ErrorNegotiated(err, serializer, migrationv1alpha1.SchemeGroupVersion, w, req)
				}
			})
		},
		IsOpen: func(virtual.Request, *corev1alpha1.LogicalCluster) bool { return true },
		// The destination reads the content while no other request is served.
		ServesMoving: true,
	}
}

// shardAuthorizer allows shards. Which logical clusters a shard may read is decided by authorize.
type shardAuthorizer struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (shardAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), shardGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "access denied", nil
}

// resolveOrigin accepts one logical cluster, and never the wildcard.
func resolveOrigin(path string) (virtual.Request, bool) {
	resolved, ok := virtual.NewPathResolver(0)(path)
	return resolved, ok && !resolved.Cluster.IsWildcard() && !resolved.Cluster.IsSystem()
}

// serve answers an operation, or returns an error that is an API status.
func (o *originService) serve(w http.ResponseWriter, req *http.Request) error {
	cluster, _ := logicalcluster.From(req.Context())
	segments := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if len(segments) == 1 && segments[0] == "claims" && req.Method == http.MethodPost {
		response, err := o.serveClaims(req)
		if err != nil {
			return asStatus(err)
		}
		return o.respond(w, req, cluster, response)
	}
	if len(segments) != 4 || segments[0] != "transfer" && segments[0] != "exists" || req.Method != http.MethodPost {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(req.Method), migrationv1alpha1.Resource("logicalclustermigrations"), "", "", 0, true)
	}
	key, ok := ParseReference(segments[1] + ":" + segments[2])
	if !ok {
		return apierrors.NewBadRequest("the path names no migration")
	}
	var response any
	var err error
	if segments[0] == "exists" {
		exists := existsResponse{}
		exists.Exists, err = o.exists(req.Context(), cluster, key, types.UID(segments[3]))
		response = exists
	} else {
		var state Origin
		if state, err = o.authorize(req.Context(), cluster, key); err == nil {
			response, err = o.run(req, state, key, operation(segments[3]))
		}
	}
	if err != nil {
		return err
	}
	return o.respond(w, req, cluster, response)
}

// respond writes a response, and returns no error: the client is gone if it cannot be written.
func (*originService) respond(w http.ResponseWriter, req *http.Request, cluster logicalcluster.Name, response any) error {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(response); err != nil {
		klog.FromContext(req.Context()).V(2).Info("Failed to send content of a logical cluster to its destination", "cluster", cluster, "err", err)
	}
	return nil
}

// exists answers whether a migration exists, on the shard that stores migrations. All shards may read them.
func (o *originService) exists(ctx context.Context, cluster logicalcluster.Name, key controller.Request, uid types.UID) (bool, error) {
	if cluster != logicalcluster.Root || o.cfg.Shard != o.cfg.Home {
		return false, apierrors.NewNotFound(migrationv1alpha1.Resource("logicalclustermigrations"), key.Name)
	}
	exists, err := o.isStored(ctx, key, uid)
	return exists, asStatus(err)
}

// authorize returns the state of a migration that this shard has accepted, and of which the user is the destination. The answer is the same
// for everything else.
func (o *originService) authorize(ctx context.Context, cluster logicalcluster.Name, key controller.Request) (Origin, error) {
	denied := apierrors.NewForbidden(migrationv1alpha1.Resource("logicalclustermigrations"), key.Name, errors.New("no migration of this logical cluster to the shard of the user is running"))
	destination, isShard := callingShard(ctx)
	if !isShard || !o.cfg.Fence.IsConfirmed() { // what a restored shard has may have been handed over
		return Origin{}, denied
	}
	state, err := o.observe(ctx, key)
	if err != nil {
		return Origin{}, err
	}
	if state.Migration == nil || state.Migration.Spec.LogicalCluster != cluster.String() || !state.AnswersTo(destination) {
		return Origin{}, denied
	}
	return state, nil
}

// callingShard returns the shard of the user, if it is one.
func callingShard(ctx context.Context) (name string, ok bool) {
	caller, ok := request.UserFrom(ctx)
	if !ok || !slices.Contains(caller.GetGroups(), shardGroup) || slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) || isImpersonated(ctx, caller) {
		return "", false
	}
	return strings.CutPrefix(caller.GetName(), shardUserPrefix)
}

// isImpersonated reports whether another user impersonates the shard. A user who may impersonate everyone is not the shard.
func isImpersonated(ctx context.Context, caller user.Info) bool {
	authenticated, known := requester.From(ctx)
	return known && authenticated.GetName() != caller.GetName()
}

func (o *originService) run(req *http.Request, state Origin, key controller.Request, op operation) (any, error) {
	cluster := logicalClusterOf(state.Migration)
	if state.movedAway() && op != opHandOver { // the destination has all
		return nil, asStatus(fmt.Errorf("the logical cluster was handed over: %w", errConflict))
	}
	ctx := logicalcluster.With(req.Context(), cluster)
	switch op {
	case opChanges:
		wanted, err := decode[changesRequest](req)
		if err != nil {
			return nil, err
		}
		response, err := o.changes(ctx, cluster, wanted)
		return response, asStatus(err)
	case opEntries:
		wanted, err := decode[entriesRequest](req)
		if err != nil {
			return nil, err
		}
		if len(wanted.Keys) > maxKeysPerRequest {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("keys: got %d, at most %d are allowed", len(wanted.Keys), maxKeysPerRequest))
		}
		if _, err := o.followings.get(cluster, wanted.Following); err != nil {
			return nil, err
		}
		entries, rest, err := o.transfer.Read(ctx, cluster, wanted.Keys, 0)
		return entriesResponse{Entries: entries, Rest: rest}, asStatus(err)
	case opPause:
		token, err := o.pause(ctx, cluster, key)
		return pauseResponse{Token: token}, asStatus(err)
	case opResume:
		return struct{}{}, asStatus(o.resume(ctx, cluster, key, ""))
	case opHandOver:
		wanted, err := decode[handOverRequest](req)
		if err != nil {
			return nil, err
		}
		response, err := o.handOver(ctx, state.Migration, key, wanted)
		return response, asStatus(err)
	}
	return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "post", migrationv1alpha1.Resource("logicalclustermigrations"), "", "", 0, true)
}

func decode[T any](req *http.Request) (T, error) {
	var wanted T
	body, err := io.ReadAll(http.MaxBytesReader(nil, req.Body, maxRequestBytes))
	if err != nil {
		return wanted, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("at most %d bytes are allowed", maxRequestBytes))
	}
	if err := json.Unmarshal(body, &wanted); err != nil {
		return wanted, apierrors.NewBadRequest(err.Error())
	}
	return wanted, nil
}

// asStatus returns an error as an API status.
func asStatus(err error) error {
	var status apierrors.APIStatus
	var early *tooEarlyError
	switch {
	case err == nil, errors.As(err, &status):
		return err
	case errors.As(err, &early):
		return apierrors.NewTooManyRequests(err.Error(), int(early.wait/time.Second)+1)
	case errors.Is(err, errConflict):
		return apierrors.NewConflict(migrationv1alpha1.Resource("logicalclustermigrations"), "", err)
	}
	return apierrors.NewInternalError(err)
}
