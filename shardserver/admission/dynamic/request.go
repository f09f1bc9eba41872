package dynamic

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// isLoopback reports whether a request is one of the shard's own.
func isLoopback(who user.Info) bool {
	return who != nil && who.GetName() == user.APIServerUser && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// isInternalWrite reports whether a request maintains the LogicalCluster object, a Shard or a LogicalClusterMigration on behalf of the
// shard. Webhooks and policies do not apply to it. Those of tenants could block the deletion of the workspace and hide the reason from
// its owner, and could choose which shard gets a logical cluster; those of root would make a shard depend on root for its own Shard.
func isInternalWrite(a admission.Attributes) bool {
	switch a.GetResource().GroupResource() {
	case corev1alpha1.Resource("logicalclusters"), corev1alpha1.Resource("shards"), migrationv1alpha1.Resource("logicalclustermigrations"):
		return isLoopback(a.GetUserInfo())
	}
	return false
}

// contextAuthorizer is an authorizer for CEL expressions, which authorize without a context: it adds that of the
// request, with the logical cluster.
type contextAuthorizer struct {
	// ctx is that of the request, because CEL does not pass one.
	ctx      context.Context
	delegate authorizer.UnconditionalAuthorizer
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a contextAuthorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.delegate.Authorize(a.ctx, attributes)
}

// addClusterAnnotation sets the logical cluster annotation on an object that is being created, so that webhooks see it,
// and returns a function that removes it again. Existing objects have it from storage.
func addClusterAnnotation(cluster logicalcluster.Name, a admission.Attributes) (restore func()) {
	if a.GetOperation() != admission.Create || a.GetObject() == nil {
		return func() {}
	}
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return func() {} // no object to annotate, for example the body of a connect request
	}
	before, had := object.GetAnnotations()[logicalcluster.AnnotationKey]
	setClusterAnnotation(object, cluster.String(), true)
	return func() { setClusterAnnotation(object, before, had) }
}

// setClusterAnnotation changes a copy of the annotations, since the map may be shared with the request's body, and
// leaves no empty map.
func setClusterAnnotation(object interface {
	GetAnnotations() map[string]string
	SetAnnotations(map[string]string)
}, value string, set bool) {
	annotations := map[string]string{}
	for key, old := range object.GetAnnotations() {
		annotations[key] = old
	}
	delete(annotations, logicalcluster.AnnotationKey)
	if set {
		annotations[logicalcluster.AnnotationKey] = value
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
}
