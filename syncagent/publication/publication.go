// Package publication contains the common form of published resources of both dialects, which all other packages of the agent use.
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
	// LabelStateAgent names the agent of a state. It is not LabelAgentName, because copies have that label, and Secrets may be published
	// as well.
	LabelStateAgent = Prefix + "object-state-agent"
	// LabelRemoteResource distinguishes copies of several published resources of one kind. Copies that other agents have created do not
	// have it.
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

// Publication is one published resource. It is immutable.
type Publication struct {
	// Object is the PublishedResource, in either dialect. Its UID identifies the publication; events and status belong to it.
	Object client.Object
	// Spec is the converted spec.
	Spec syncagentv1alpha1.PublishedResourceSpec
	// Allowed contains the names that the annotations of the object allow.
	Allowed Allowed
	// Invalid contains the validation errors of the object, with the paths of its dialect. If it is not empty, the agent neither
	// publishes nor syncs.
	Invalid field.ErrorList
	// SchemaName is the name of the APIResourceSchema; it is empty until the schema exists.
	SchemaName string
}
