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
	// decisionAnnotation is stock's.
	decisionAnnotation = "authorization.k8s.io/decision"
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
	other
)

var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// classify returns the class of an event.
func classify(event *auditinternal.Event) class {
	if event.Stage != auditinternal.StageResponseComplete && event.Stage != auditinternal.StagePanic {
		return ignored
	}
	source := audit.SourceOf(event)
	if source != audit.SourceWorkspace && source != audit.SourceView || event.User.Username == loopbackUser || slices.Contains(event.User.Groups, authorization.GroupShard) {
		return ignored
	}
	failed := event.ResponseStatus == nil || event.ResponseStatus.Code >= http.StatusBadRequest
	isSecret := event.ObjectRef != nil && event.ObjectRef.APIGroup == "" && event.ObjectRef.Resource == "secrets"
	isWrite := event.ObjectRef != nil && slices.Contains(writes, event.Verb)
	switch {
	case failed && source == audit.SourceView: // perhaps of an owner with whom the logical cluster has nothing in common
		return ignored
	case isWrite && !failed:
		return change
	case isWrite, isSecret, isRefused(event):
		return other
	}
	return ignored
}

func isRefused(event *auditinternal.Event) bool {
	return event.ResponseStatus != nil && (event.ResponseStatus.Code == http.StatusUnauthorized || event.ResponseStatus.Code == http.StatusForbidden)
}

// encode returns an event as its logical cluster may see it: metadata of the request, and names of users. Groups, UIDs and extras of users, the
// reasons of authorization, messages of errors and annotations may tell of other logical clusters, or of the installation.
func encode(event *auditinternal.Event, cluster logicalcluster.Name) ([]byte, error) {
	refused, isView := isRefused(event), audit.SourceOf(event) == audit.SourceView
	shown := auditv1.Event{
		Level:                    auditv1.LevelMetadata,
		AuditID:                  types.UID(cut(string(event.AuditID), maxShort)),
		Stage:                    auditv1.Stage(event.Stage),
		RequestURI:               cut(event.RequestURI, maxURI),
		Verb:                     cut(event.Verb, maxShort),
		User:                     authenticationv1.UserInfo{Username: nameOf(event.User, cluster, refused)},
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
		shown.ImpersonatedUser = &authenticationv1.UserInfo{Username: nameOf(*event.ImpersonatedUser, cluster, refused)}
	}
	if !refused && !isForeign(event.User, cluster) && !isComponent(event.User) {
		shown.UserAgent = cut(event.UserAgent, maxText)
		if len(event.SourceIPs) > 0 {
			shown.SourceIPs = []string{cut(event.SourceIPs[0], maxShort)} // further ones are those of proxies
		}
	}
	return json.Marshal(shown)
}

// nameOf returns the name of a user as a logical cluster may see it.
func nameOf(u authenticationv1.UserInfo, cluster logicalcluster.Name, refused bool) string {
	switch {
	case !isForeign(u, cluster):
		return cut(u.Username, maxText)
	case refused:
		return foreignUser
	}
	// The logical cluster has given it access, by this name if it did by name.
	account, ok := strings.CutPrefix(u.Username, serviceaccount.ServiceAccountUsernamePrefix)
	if origins := u.Extra[authorization.ClusterNameExtraKey]; ok && len(origins) == 1 {
		return cut(authorization.ForeignServiceAccountPrefix+origins[0]+":"+account, maxText)
	}
	return cut(u.Username, maxText)
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
