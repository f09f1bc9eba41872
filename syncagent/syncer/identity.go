package syncer

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// Source identifies a primary object.
type Source struct {
	Cluster logicalcluster.Name
	types.NamespacedName
}

// Labels returns the labels that identify the copy of a source.
func (s Source) Labels() map[string]string {
	labels := map[string]string{
		publication.LabelRemoteCluster:  s.Cluster.String(),
		publication.LabelRemoteNameHash: expression.SHA1Hex(s.Name),
	}
	if s.Namespace != "" {
		labels[publication.LabelRemoteNamespaceHash] = expression.SHA1Hex(s.Namespace)
	}
	return labels
}

// SourceOf returns the source that a copy names, and false if its labels and annotations name none.
func SourceOf(copied metav1.Object) (Source, bool) {
	labels, annotations := copied.GetLabels(), copied.GetAnnotations()
	cluster, err := logicalcluster.ParseName(labels[publication.LabelRemoteCluster])
	source := Source{cluster, types.NamespacedName{
		Namespace: annotations[publication.AnnotationRemoteNamespace], Name: annotations[publication.AnnotationRemoteName],
	}}
	if err != nil || source.Name == "" {
		return Source{}, false
	}
	for key, value := range source.Labels() {
		if labels[key] != value {
			return Source{}, false
		}
	}
	return source, true
}

// BelongsTo reports whether a copy that names a source may be the copy of an object of this resource in workspaces. A copy without the
// label and the annotation of its resource may belong to any resource, until an agent labels it.
func BelongsTo(copied metav1.Object, workspace workspaces.Resource) bool {
	label, annotation := copied.GetLabels()[publication.LabelRemoteResource], copied.GetAnnotations()[publication.AnnotationRemoteResource]
	return (label == "" || label == resourceHash(workspace)) && (annotation == "" || annotation == resourceName(workspace))
}

func resourceHash(workspace workspaces.Resource) string {
	return expression.ShortHash(resourceName(workspace))
}

func resourceName(workspace workspaces.Resource) string {
	return workspace.GroupVersionResource().GroupResource().String()
}

// Copies finds copies.
type Copies interface {
	// Find returns the copies of the agent whose labels name a source, including copies of other resources. Callers may modify the
	// result.
	Find(ctx context.Context, source Source) ([]unstructured.Unstructured, error)
}

// ListedCopies finds copies with a list request.
type ListedCopies struct {
	Reader    client.Reader
	Kind      schema.GroupVersionKind
	AgentName string
}

// Find implements Copies.
func (c ListedCopies) Find(ctx context.Context, source Source) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(c.Kind.GroupVersion().WithKind(c.Kind.Kind + "List"))
	if err := c.Reader.List(ctx, list, client.MatchingLabels(source.Labels())); err != nil {
		return nil, err
	}
	found := list.Items[:0]
	for _, item := range list.Items {
		_, namespaced := item.GetLabels()[publication.LabelRemoteNamespaceHash]
		agent := item.GetLabels()[publication.LabelAgentName]
		if item.GetLabels()[publication.LabelObjectState] != "" {
			continue // a state has the labels of the copy
		}
		if namespaced == (source.Namespace != "") && (agent == "" || agent == c.AgentName) {
			found = append(found, item)
		}
	}
	return found, nil
}

// theCopy returns the copy that belongs to the resource of the publication, or nil. It returns an error if several copies do.
func (re *reconciliation) theCopy(found []unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var own *unstructured.Unstructured
	for i := range found {
		if !BelongsTo(&found[i], re.config.WorkspaceResource) {
			continue
		}
		if own != nil {
			return nil, &AmbiguousError{re.request.Source()}
		}
		own = &found[i]
	}
	return own, nil
}

// identification returns the labels and annotations that identify the source of a copy.
func (re *reconciliation) identification() metadata {
	labels := re.request.Source().Labels()
	labels[publication.LabelAgentName] = re.config.AgentName
	labels[publication.LabelRemoteResource] = resourceHash(re.config.WorkspaceResource)
	annotations := map[string]string{
		publication.AnnotationRemoteName: re.request.Name, publication.AnnotationRemoteResource: resourceName(re.config.WorkspaceResource),
	}
	if re.request.Namespace != "" {
		annotations[publication.AnnotationRemoteNamespace] = re.request.Namespace
	}
	if re.path != "" {
		annotations[publication.AnnotationWorkspacePath] = re.path
	}
	return metadata{labels, annotations}
}

// claim is which source the metadata of an existing object names.
type claim int

const (
	// claimOwn means that the object is the copy of the source.
	claimOwn claim = iota
	// claimNone means that the object names no source, or that a part of its identification is missing.
	claimNone
	// claimOther means that the object is the copy of another source, of an object of another resource, or of another agent.
	claimOther
)

// claimOf compares an existing object with the identification that it should have.
func claimOf(existing metav1.Object, wanted metadata) claim {
	labels, annotations := existing.GetLabels(), existing.GetAnnotations()
	result := claimOwn
	if resource := labels[publication.LabelRemoteResource]; resource != "" && resource != wanted.labels[publication.LabelRemoteResource] {
		return claimOther // a missing label is valid: copies of api-syncagent have none
	}
	for _, key := range []string{
		publication.LabelAgentName, publication.LabelRemoteCluster, publication.LabelRemoteNamespaceHash, publication.LabelRemoteNameHash,
	} {
		switch labels[key] {
		case wanted.labels[key]:
		case "":
			result = claimNone
		default:
			return claimOther
		}
	}
	for _, key := range []string{publication.AnnotationRemoteName, publication.AnnotationRemoteNamespace, publication.AnnotationRemoteResource} {
		if value := annotations[key]; value != "" && value != wanted.annotations[key] {
			return claimOther
		}
	}
	return result
}

// metadata are labels and annotations.
type metadata struct {
	labels, annotations map[string]string
}

// isSyncableLabel reports whether a label is part of an object's content. Labels of the agent never are, no matter which user has set
// them: on a copy they would name a source.
func isSyncableLabel(key string) bool {
	return !isOfAgent(key) && !strings.HasPrefix(key, apisv1alpha2.ClaimedLabelKeyPrefix)
}

func isSyncableAnnotation(key string) bool {
	return !isOfAgent(key) && key != logicalcluster.AnnotationKey && key != corev1.LastAppliedConfigAnnotation
}

// isOfAgent reports whether a key belongs to the agent's domain or a subdomain of it.
func isOfAgent(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return qualified && (domain == syncagentv1alpha1.GroupName || strings.HasSuffix(domain, "."+syncagentv1alpha1.GroupName))
}

// missing returns the labels and annotations of m that the given ones do not contain.
func (m metadata) missing(labels, annotations map[string]string) metadata {
	return metadata{notIn(m.labels, labels), notIn(m.annotations, annotations)}
}

func (m metadata) empty() bool { return len(m.labels) == 0 && len(m.annotations) == 0 }

func notIn(wanted, existing map[string]string) map[string]string {
	missing := maps.Clone(wanted)
	maps.DeleteFunc(missing, func(key, value string) bool {
		have, found := existing[key]
		return found && have == value
	})
	return missing
}

// merged returns the union of both, or nil if it is empty; values of the second map take precedence.
func merged(values, others map[string]string) map[string]string {
	if len(values)+len(others) == 0 {
		return nil
	}
	result := map[string]string{}
	maps.Copy(result, values)
	maps.Copy(result, others)
	return result
}
