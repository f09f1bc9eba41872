package limits

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// maxReferences bounds the owners, and the finalizers, of an object: the garbage collector, which all logical clusters share, reads each
// owner from etcd that it does not find in memory.
const maxReferences = 1000

// maxManagers bounds the managed fields of an object: each write compares its changes with the fields of each manager. Kubernetes limits
// the managers of updates only.
const maxManagers = 250

// metadataLimits refuses objects with too many owners, finalizers or field managers, unless they are stored with as many.
type metadataLimits struct {
	*admission.Handler
	references, managers int
}

// NewMetadataLimits returns the plug-in kcp.io/MetadataLimits.
func NewMetadataLimits(rules.Config) admission.Interface {
	return metadataLimits{admission.NewHandler(admission.Create, admission.Update), maxReferences, maxManagers}
}

// Validate implements admission.ValidationInterface.
func (m metadataLimits) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil // objects without metadata have neither
	}
	var stored metav1.Object = &metav1.ObjectMeta{}
	if old, err := meta.Accessor(a.GetOldObject()); err == nil {
		stored = old
	}
	errs := checkCount(len(object.GetOwnerReferences()), len(stored.GetOwnerReferences()), m.references, "ownerReferences")
	errs = append(errs, checkCount(len(object.GetFinalizers()), len(stored.GetFinalizers()), m.references, "finalizers")...)
	errs = append(errs, checkCount(countManagers(a.GetObject()), countManagers(a.GetOldObject()), m.managers, "managedFields")...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), object.GetName(), errs)
	}
	return nil
}

// countManagers returns the number of managed fields, without the copy that the accessor of custom resources makes.
func countManagers(object runtime.Object) int {
	if custom, ok := object.(*unstructured.Unstructured); ok {
		value, _, _ := unstructured.NestedFieldNoCopy(custom.Object, "metadata", "managedFields")
		entries, _ := value.([]any)
		return len(entries)
	}
	if accessor, err := meta.Accessor(object); err == nil {
		return len(accessor.GetManagedFields())
	}
	return 0
}

func checkCount(count, stored, limit int, name string) field.ErrorList {
	if count > max(limit, stored) {
		return field.ErrorList{field.TooMany(field.NewPath("metadata", name), count, limit)}
	}
	return nil
}
