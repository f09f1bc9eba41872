// Package publication has the form of a published resource that the other packages of the agent know, whichever dialect it was
// written in.
package publication

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

// Prefix is the prefix of the agent's labels, annotations and finalizers.
const Prefix = syncagentv1alpha1.GroupName + "/"

// Labels and annotations of objects that the agent writes.
const (
	LabelAgentName           = Prefix + "agent-name"
	LabelRemoteCluster       = Prefix + "remote-object-cluster"
	LabelRemoteNamespaceHash = Prefix + "remote-object-namespace-hash"
	LabelRemoteNameHash      = Prefix + "remote-object-name-hash"
	LabelObjectState         = Prefix + "object-state"
	// LabelStateAgent names the agent of a state. It is not LabelAgentName, which copies have: Secrets may be published, too.
	LabelStateAgent = Prefix + "object-state-agent"
	// LabelRemoteResource tells copies of several published resources of one kind apart. Copies that other agents have made lack it.
	LabelRemoteResource = Prefix + "remote-object-resource"

	AnnotationRemoteNamespace  = Prefix + "remote-object-namespace"
	AnnotationRemoteName       = Prefix + "remote-object-name"
	AnnotationRemoteResource   = Prefix + "remote-object-resource"
	AnnotationWorkspacePath    = Prefix + "remote-object-workspace-path"
	AnnotationSourceGeneration = Prefix + "source-generation"
	// AnnotationRelatedPrefix is followed by "<identifier>.<index>".
	AnnotationRelatedPrefix = "related-resources." + Prefix

	// Finalizer is on every object of a workspace that has a copy.
	Finalizer = Prefix + "cleanup"
)

// Publication is one published resource. It is never changed after it has been made.
type Publication struct {
	// Object is the object it was made of, of either dialect. Its UID identifies the publication; events and status belong to it.
	Object client.Object
	// Spec is what is published.
	Spec syncagentv1alpha1.PublishedResourceSpec
	// Allowed is what the annotations of the object allow.
	Allowed Allowed
	// Invalid is what is wrong with the object, with the paths of its dialect. Nothing is published or synced while there is
	// anything.
	Invalid field.ErrorList
	// SchemaName is the name of the APIResourceSchema, empty until there is one.
	SchemaName string
}
