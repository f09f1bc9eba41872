// Package apply applies rendered objects to the cluster and reads the objects that they depend on. It applies whole objects server-side:
// the API server removes fields that are not rendered any more, and fields of other managers remain. The package decides nothing about
// content; a missing Secret or a rejected object is a result of package status.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/controllers/status"
)

// FieldManager owns the fields that the operator renders.
const FieldManager = "atoll-operator"

// Cluster is the Kubernetes cluster the operator works on.
type Cluster struct{ client.Client }

// appliedAnnotation holds a hash of the last applied intent. With it, an object that matches costs a read from the cache instead of a
// write, and a field that is not rendered any more is still detected.
const appliedAnnotation = "operator.kcp.io/applied"

// ApplyObject applies one whole object, if it differs. The user has to correct an object that the API server rejects: it is a stalled
// result of the given condition type, as a status.Error. object becomes the one in the cluster, with its status.
func (c Cluster) ApplyObject(ctx context.Context, conditionType string, object client.Object) error {
	live := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	switch err := c.Get(ctx, client.ObjectKeyFromObject(object), live); {
	case err == nil:
		return c.applyOver(ctx, conditionType, live, object)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
	}
	return c.applyOver(ctx, conditionType, nil, object)
}

// CreateMissing applies an object that does not exist yet. One that exists stays as it is, because it cannot be changed when that from which it is
// rendered changes, or is not to be. object becomes the one in the cluster.
func CreateMissing[T any, P interface {
	*T
	client.Object
}](ctx context.Context, cluster Cluster, conditionType string, object P) error {
	live, err := Get[T, P](ctx, cluster, object.GetNamespace(), object.GetName())
	if err != nil {
		return err
	}
	if live != nil {
		*object = *live
		return nil
	}
	return cluster.ApplyObject(ctx, conditionType, object)
}

// applyOver is ApplyObject with the object in the cluster, or nil.
func (c Cluster) applyOver(ctx context.Context, conditionType string, live, object client.Object) error {
	intent, err := newIntent(object)
	if err != nil {
		return err
	}
	hash, err := hashIntent(intent)
	if err != nil {
		return err
	}
	annotations := maps.Clone(intent.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[appliedAnnotation] = hash
	intent.SetAnnotations(annotations)

	if live != nil {
		if err := c.adopt(ctx, conditionType, live, object); err != nil {
			return err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
		if err != nil {
			return fmt.Errorf("reading %T %s: %w", live, live.GetName(), err)
		}
		// Typed reads have no kind.
		content["apiVersion"], content["kind"] = intent.GetAPIVersion(), intent.GetKind()
		if covers(content, intent.Object) {
			reflect.ValueOf(object).Elem().Set(reflect.ValueOf(live).Elem())
			return nil
		}
	}
	if err := c.apply(ctx, FieldManager, conditionType, intent); err != nil {
		return err
	}
	reflect.ValueOf(object).Elem().SetZero()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(intent.Object, object); err != nil {
		return fmt.Errorf("reading the applied %s %s: %w", intent.GetKind(), intent.GetName(), err)
	}
	return nil
}

// WriteStatus patches the status of an object from before to after, and reports whether it did. It returns no error if the object has
// been changed or deleted in the meantime: that event reconciles the object again. Without the lock, a reconcile from an outdated cache
// would write an old status, and record the event of a transition twice.
func (c Cluster) WriteStatus(ctx context.Context, before, after client.Object) (bool, error) {
	if data, err := client.MergeFrom(before).Data(after); err != nil || string(data) == "{}" {
		return false, err
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	switch err := c.Status().Patch(ctx, after, patch, client.FieldOwner(FieldManager)); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the status of %T %s/%s: %w", after, after.GetNamespace(), after.GetName(), err)
	}
	return true, nil
}

// applyAs applies an object as a field manager, without comparing first.
func (c Cluster) applyAs(ctx context.Context, manager, conditionType string, object client.Object) error {
	intent, err := newIntent(object)
	if err != nil {
		return err
	}
	return c.apply(ctx, manager, conditionType, intent)
}

func (c Cluster) apply(ctx context.Context, manager, conditionType string, intent *unstructured.Unstructured) error {
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(intent), client.FieldOwner(manager), client.ForceOwnership)
	switch {
	case err == nil:
		return nil
	case isRejected(err):
		return status.Stall(conditionType, "Rejected", "the API server rejects %s %s: %v", intent.GetKind(), intent.GetName(), err).AsError()
	default:
		return fmt.Errorf("applying %s %s/%s: %w", intent.GetKind(), intent.GetNamespace(), intent.GetName(), err)
	}
}

// isRejected reports whether the API server, or an admission webhook, rejects the object as invalid.
func isRejected(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsNotAcceptable(err)
}

// newIntent converts a typed object to the applied intent: without the status, and without zero values of Go types, which would own
// fields that are not set.
func newIntent(object client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("rendering %T %s: %w", object, object.GetName(), err)
	}
	delete(content, "status")
	prune(content)
	return &unstructured.Unstructured{Object: content}, nil
}

// prune removes nulls, and maps that are empty because every field in them is omitted. Empty maps with a meaning
// (emptyDir: {}, selfSigned: {}) are kept, by name.
func prune(object map[string]any) {
	for key, value := range object {
		switch v := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			prune(v)
			if len(v) == 0 && !keepEmptyKeys[key] {
				delete(object, key)
			}
		case []any:
			for _, element := range v {
				if m, ok := element.(map[string]any); ok {
					prune(m)
				}
			}
		}
	}
}

var keepEmptyKeys = map[string]bool{
	"emptyDir": true, "selfSigned": true, "podSelector": true, "labelSelector": true, "namespaceSelector": true, "matchLabels": true,
}

func hashIntent(intent *unstructured.Unstructured) (string, error) {
	// Maps are marshaled in the order of their keys.
	content, err := json.Marshal(intent.Object)
	if err != nil {
		return "", fmt.Errorf("rendering %s %s: %w", intent.GetKind(), intent.GetName(), err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8]), nil
}

// covers reports whether every field of an intent has its value. Values that the API server normalizes ("1000m" to "1") count as
// different: that may cause an unnecessary write, but never a missing one.
func covers(live, intent any) bool {
	switch want := intent.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return len(want) == 0 && live == nil
		}
		for key, value := range want {
			if !covers(have[key], value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := live.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !covers(have[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(live, intent)
	}
}
