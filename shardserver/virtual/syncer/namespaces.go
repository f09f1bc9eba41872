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

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// isVisible reports whether the named object of a request matches the filter. An object with the agent's finalizer is visible,
// too: the agent has to release it.
func (w *workspace) isVisible(ctx context.Context, c *publishedRequest) (bool, error) {
	if c.Objects == nil && c.Namespaces == nil {
		return true, nil
	}
	served, err := w.config.Registry.Resolve(ctx, c.name())
	if served == nil || err != nil {
		return err == nil, err // the virtual workspace of the export responds
	}
	return virtual.IsVisible(ctx, served.Store, c.info.Namespace, c.info.Name, func(object metav1.Object, latest bool) (bool, error) {
		if slices.Contains(object.GetFinalizers(), finalizer) {
			return true, nil
		}
		if c.Objects != nil && !c.Objects.Matches(labels.Set(object.GetLabels())) {
			return false, nil
		}
		if c.Namespaces == nil || c.info.Namespace == "" {
			return true, nil
		}
		return w.isSelectedNamespace(ctx, c.published, c.target.Cluster, c.info.Namespace, latest)
	})
}

// matchesNamespace reports whether the filter matches the namespace of an object, as JSON.
func (w *workspace) matchesNamespace(ctx context.Context, p *published, raw json.RawMessage) (bool, error) {
	if p.Namespaces == nil {
		return true, nil
	}
	cluster, namespace, err := locate(raw)
	if err != nil || namespace == "" {
		return err == nil, err
	}
	return w.isSelectedNamespace(ctx, p, cluster, namespace, false)
}

// locate returns the logical cluster and the namespace of an object, as JSON.
func locate(raw json.RawMessage) (logicalcluster.Name, string, error) {
	var object struct {
		Metadata struct {
			Namespace   string            `json:"namespace"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return logicalcluster.Name{}, "", err
	}
	cluster, err := logicalcluster.ParseName(object.Metadata.Annotations[logicalcluster.AnnotationKey])
	if err != nil {
		return logicalcluster.Name{}, "", fmt.Errorf("the logical cluster of an object: %w", err)
	}
	return cluster, object.Metadata.Namespace, nil
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
