package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// selects reports whether the labels of an object match the filter. An object with the agent's finalizer is shown whatever its
// labels are: only the agent can release it.
func (p *published) selects(object metav1.Object) bool {
	return p.Objects == nil || p.Objects.Matches(labels.Set(object.GetLabels())) || hasFinalizer(object.GetFinalizers())
}

func hasFinalizer(finalizers []string) bool { return slices.Contains(finalizers, finalizer) }

// isVisible reports whether the named object of a request is shown.
func (w *workspace) isVisible(ctx context.Context, c *publishedRequest) (bool, error) {
	if c.Objects == nil && c.Namespaces == nil {
		return true, nil
	}
	served, err := w.config.Registry.Resolve(ctx, c.name())
	if served == nil || err != nil {
		return err == nil, err // the virtual workspace of the export responds
	}
	return virtual.IsVisible(ctx, served.Store, c.info.Namespace, c.info.Name, func(object metav1.Object, latest bool) (bool, error) {
		switch {
		case !c.selects(object):
			return false, nil
		case c.Namespaces == nil || c.info.Namespace == "" || hasFinalizer(object.GetFinalizers()):
			return true, nil
		}
		return w.isSelectedNamespace(ctx, c.published, c.target.Cluster, c.info.Namespace, latest)
	})
}

// reference is what identifies an object, and what decides about it besides its labels.
type reference struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace,omitempty"`
		UID             types.UID         `json:"uid,omitempty"`
		ResourceVersion string            `json:"resourceVersion,omitempty"`
		Annotations     map[string]string `json:"annotations,omitempty"`
		Finalizers      []string          `json:"finalizers,omitempty"`
	} `json:"metadata"`
}

// readReference decodes the reference of an object, and returns its logical cluster.
func readReference(raw json.RawMessage) (reference, logicalcluster.Name, error) {
	var object reference
	if err := json.Unmarshal(raw, &object); err != nil {
		return object, logicalcluster.Name{}, err
	}
	cluster, err := logicalcluster.ParseName(object.Metadata.Annotations[logicalcluster.AnnotationKey])
	if err != nil {
		err = fmt.Errorf("the logical cluster of an object: %w", err)
	}
	object.Metadata.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster.String()}
	return object, cluster, err
}

// isShown reports whether an object, as JSON, whose labels match, is also shown by its namespace.
func (p *publishedRequest) isShown(ctx context.Context, raw json.RawMessage) (bool, error) {
	if p.Namespaces == nil {
		return true, nil
	}
	object, cluster, err := readReference(raw)
	if err != nil || object.Metadata.Namespace == "" || hasFinalizer(object.Metadata.Finalizers) {
		return err == nil, err
	}
	return p.view.isSelectedNamespace(ctx, p.published, cluster, object.Metadata.Namespace, false)
}

// isSelectedNamespace reports whether the filter selects a namespace that the export may read.
func (w *workspace) isSelectedNamespace(ctx context.Context, p *published, cluster logicalcluster.Name, namespace string, latest bool) (bool, error) {
	read := w.namespaces.Get
	if latest {
		read = w.namespaces.GetLatest
	}
	var found runtime.Object
	found, err := read(logicalcluster.With(ctx, cluster), "", namespace)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	object, err := meta.Accessor(found)
	if err != nil {
		return false, err
	}
	key, value := apiindex.ClaimLabel(p.export, *p.namespacesClaim)
	return object.GetLabels()[key] == value && p.Namespaces.Matches(labels.Set(object.GetLabels())), nil
}
