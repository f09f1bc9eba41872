package dynamic

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// ofShard tells whether a request is one of the shard's own.
func ofShard(who user.Info) bool {
	return who != nil && who.GetName() == user.APIServerUser && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// bookkeeping tells whether a request is one by which the shard keeps account of a logical cluster. A tenant's webhooks
// and policies do not see it: they could keep the workspace from being deleted, and its owner from learning why.
func bookkeeping(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == corev1alpha1.Resource("logicalclusters") && ofShard(a.GetUserInfo())
}

// asked is an authorizer for CEL expressions, which ask without a context: it brings that of the request, and with it
// the logical cluster.
type asked struct {
	// ctx is what CEL does not pass on.
	ctx      context.Context
	delegate authorizer.Authorizer
}

// Authorize implements authorizer.Authorizer.
func (a asked) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.delegate.Authorize(a.ctx, attributes)
}

// showCluster puts the annotation with the logical cluster on an object that is being created, where webhooks find it,
// and returns what takes it off again. Objects that exist have it from storage.
func showCluster(cluster logicalcluster.Name, a admission.Attributes) (restore func()) {
	if a.GetOperation() != admission.Create || a.GetObject() == nil {
		return func() {}
	}
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return func() {} // nothing that could be annotated, the body of a connection say
	}
	before, had := object.GetAnnotations()[logicalcluster.AnnotationKey]
	annotate(object, cluster.String(), true)
	return func() { annotate(object, before, had) }
}

// annotate writes into a copy, since the map may be shared with what the client sent, and leaves no empty map behind.
func annotate(object interface {
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
