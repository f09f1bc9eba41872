package syncer

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/expression"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// Source identifies a primary object.
type Source struct {
	Cluster logicalcluster.Name
	types.NamespacedName
}

// Labels returns the labels by which the copy of a source is found.
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

// Copies finds copies.
type Copies interface {
	// Find returns the copies of the agent whose labels name a source: none, one, or at least two if there are more. The caller may
	// change them.
	Find(ctx context.Context, source Source) ([]unstructured.Unstructured, error)
}

// ListedCopies finds copies by a list.
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
		if namespaced == (source.Namespace != "") && (agent == "" || agent == c.AgentName) {
			found = append(found, item)
		}
	}
	return found, nil
}

// identification returns what labels and annotations of a copy have to say about its source.
func (p *pass) identification() metadata {
	labels := p.request.Source().Labels()
	labels[publication.LabelAgentName] = p.config.AgentName
	annotations := map[string]string{publication.AnnotationRemoteName: p.request.Name}
	if p.request.Namespace != "" {
		annotations[publication.AnnotationRemoteNamespace] = p.request.Namespace
	}
	if p.path != "" {
		annotations[publication.AnnotationWorkspacePath] = p.path
	}
	return metadata{labels, annotations}
}

// claim is what an existing object says about whose copy it is.
type claim int

const (
	// claimOwn means that it is the copy of the source.
	claimOwn claim = iota
	// claimNone means that it says nothing, or less than it should.
	claimNone
	// claimOther means that it is the copy of another source, or of another agent.
	claimOther
)

// claimOf compares an existing object with the identification that it should have.
func claimOf(existing metav1.Object, wanted metadata) claim {
	labels, annotations := existing.GetLabels(), existing.GetAnnotations()
	result := claimOwn
	for _, key := range []string{
		publication.LabelAgentName, publication.LabelRemoteCluster, publication.LabelRemoteNamespaceHash, publication.LabelRemoteNameHash,
	} {
		switch value, want := labels[key], wanted.labels[key]; {
		case value == want:
		case value == "":
			result = claimNone
		default:
			return claimOther
		}
	}
	for _, key := range []string{publication.AnnotationRemoteName, publication.AnnotationRemoteNamespace} {
		switch value, want := annotations[key], wanted.annotations[key]; {
		case value == want || value == "":
		default:
			return claimOther
		}
	}
	return result
}
