package workspacelog

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
)

const (
	// loopbackUser is the user of the shard's own controllers.
	loopbackUser = user.APIServerUser
	// foreignUser is shown instead of an identity of another logical cluster whose request was refused.
	foreignUser = "system:kcp:user-of-another-workspace"
	// viewUserPrefix precedes the virtual workspace and its owner, such as the logical cluster and name of an APIExport, which a binding names.
	// Who uses a virtual workspace is not known to the workspaces that are seen through it.
	viewUserPrefix = "system:kcp:view:"
	// decisionAnnotation and its value are stock's.
	decisionAnnotation = "authorization.k8s.io/decision"
	allowed            = "allow"
)

// Longest strings of an event, in bytes. Clients choose their lengths.
const (
	maxName  = 253
	maxText  = 256
	maxURI   = 1024
	maxShort = 64
)

// class is what an event is to the log.
type class int

const (
	ignored class = iota
	change        // that succeeded
	other         // that authorization has allowed
	refused
)

var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// classify returns the class of an event.
func classify(event *auditinternal.Event) class {
	if !isEnd(event) {
		return ignored
	}
	source := audit.SourceOf(event)
	if source != audit.SourceWorkspace && source != audit.SourceView || event.User.Username == loopbackUser || slices.Contains(event.User.Groups, authorization.GroupShard) {
		return ignored
	}
	failed := event.ResponseStatus == nil || event.ResponseStatus.Code >= http.StatusBadRequest
	isWrite := event.ObjectRef != nil && slices.Contains(writes, event.Verb)
	switch {
	case failed && source == audit.SourceView: // perhaps of an owner with whom the logical cluster has nothing in common
		return ignored
	case isWrite && !failed:
		return change
	case !isWrite && !isSecret(event) && !isRefused(event):
		return ignored
	case failed && event.Annotations[decisionAnnotation] != allowed: // or there was no decision, as where a user sends too many requests
		return refused
	}
	return other
}

// isEnd reports whether an event is the one of its request that is recorded. That of a watch of secrets is the one at its begin, because it may
// last long. Failed authentication has no later one.
func isEnd(event *auditinternal.Event) bool {
	isSecretWatch := event.Verb == "watch" && isSecret(event)
	switch event.Stage {
	case auditinternal.StageResponseStarted:
		return isSecretWatch || event.User.Username == "" && event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusUnauthorized
	case auditinternal.StageResponseComplete:
		return !isSecretWatch
	}
	return event.Stage == auditinternal.StagePanic
}

func isSecret(event *auditinternal.Event) bool {
	return event.ObjectRef != nil && event.ObjectRef.APIGroup == "" && event.ObjectRef.Resource == "secrets"
}

func isRefused(event *auditinternal.Event) bool {
	return event.ResponseStatus != nil && (event.ResponseStatus.Code == http.StatusUnauthorized || event.ResponseStatus.Code == http.StatusForbidden)
}

// encode returns an event as its logical cluster may see it: metadata of the request, and names of users. Groups, UIDs and extras of users, the
// reasons of authorization, messages of errors and annotations may tell of other logical clusters, or of the installation.
func encode(event *auditinternal.Event, cluster logicalcluster.Name) ([]byte, error) {
	isHidden, isView := isRefused(event) || classify(event) == refused, audit.SourceOf(event) == audit.SourceView
	shown := auditv1.Event{
		Level:                    auditv1.LevelMetadata,
		AuditID:                  types.UID(cut(string(event.AuditID), maxShort)),
		Stage:                    auditv1.Stage(event.Stage),
		RequestURI:               cut(event.RequestURI, maxURI),
		Verb:                     cut(event.Verb, maxShort),
		User:                     authenticationv1.UserInfo{Username: nameOf(event.User, cluster, isHidden)},
		RequestReceivedTimestamp: event.RequestReceivedTimestamp,
		StageTimestamp:           event.StageTimestamp,
	}
	if ref := event.ObjectRef; ref != nil {
		shown.ObjectRef = &auditv1.ObjectReference{
			Resource: cut(ref.Resource, maxName), Namespace: cut(ref.Namespace, maxName), Name: cut(ref.Name, maxName), UID: types.UID(cut(string(ref.UID), maxShort)),
			APIGroup: cut(ref.APIGroup, maxName), APIVersion: cut(ref.APIVersion, maxShort), Subresource: cut(ref.Subresource, maxName),
		}
	}
	if status := event.ResponseStatus; status != nil {
		shown.ResponseStatus = &metav1.Status{Code: status.Code, Reason: metav1.StatusReason(cut(string(status.Reason), maxShort))}
	}
	if decision := event.Annotations[decisionAnnotation]; decision != "" {
		shown.Annotations = map[string]string{decisionAnnotation: cut(decision, maxShort)}
	}
	if isView {
		shown.User.Username = cut(viewUserPrefix+event.Annotations[audit.ViewAnnotation], maxURI)
		return json.Marshal(shown)
	}
	if event.ImpersonatedUser != nil {
		shown.ImpersonatedUser = &authenticationv1.UserInfo{Username: nameOf(*event.ImpersonatedUser, cluster, isHidden)}
	}
	if !isHidden && !isForeign(event.User, cluster) && !isComponent(event.User) {
		shown.UserAgent = cut(event.UserAgent, maxText)
		if address := audit.ClientAddress(event); address != "" {
			shown.SourceIPs = []string{cut(address, maxShort)}
		}
	}
	return json.Marshal(shown)
}

// nameOf returns the name of a user as a logical cluster may see it. isHidden means that the logical cluster has not given it access.
func nameOf(u authenticationv1.UserInfo, cluster logicalcluster.Name, isHidden bool) string {
	origins := u.Extra[authorization.ClusterNameExtraKey]
	account, isAccount := strings.CutPrefix(u.Username, serviceaccount.ServiceAccountUsernamePrefix)
	switch {
	case !isForeign(u, cluster):
		return cut(u.Username, maxText)
	case isHidden || len(origins) > 1:
		return foreignUser
	case len(origins) == 0: // an administrator impersonates it by this name
		return cut(u.Username, maxText)
	case isAccount:
		return cut(authorization.ForeignServiceAccountPrefix+origins[0]+":"+account, maxText)
	}
	// An issuer of the other logical cluster has chosen the name, perhaps that of a user of this one.
	return cut(authorization.ClusterGroupPrefix+origins[0], maxText)
}

// isForeign reports whether another logical cluster has authenticated a user.
func isForeign(u authenticationv1.UserInfo, cluster logicalcluster.Name) bool {
	origins := u.Extra[authorization.ClusterNameExtraKey]
	return len(origins) > 0 && (len(origins) > 1 || origins[0] != cluster.String()) || strings.HasPrefix(u.Username, authorization.ForeignServiceAccountPrefix)
}

// isComponent reports whether a user is a component or an administrator of the installation, whose addresses are none of a tenant's business.
func isComponent(u authenticationv1.UserInfo) bool {
	return slices.ContainsFunc(u.Groups, func(group string) bool {
		return group == authorization.GroupMasters || strings.HasPrefix(group, "system:kcp:")
	})
}

// cut returns the beginning of a string, without a part of a character.
func cut(s string, length int) string {
	if len(s) <= length {
		return s
	}
	for length > 0 && !utf8.RuneStart(s[length]) {
		length--
	}
	return s[:length]
}
