package metadata

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// reservedSuffix is the suffix of keys that only masters may change if reservedMetadata is enabled. It is compared with
// the whole key: "example/kcp.io" is reserved, "core.kcp.io/max-total-objects" is not. Hence keys that the server
// permits to tenants (owner, required groups, path, labels of claims) need no exception.
const reservedSuffix = "kcp.io"

// reservedMetadata refuses changes of annotations and labels whose keys end in reservedSuffix.
type reservedMetadata struct{ *admission.Handler }

// NewReservedMetadata returns the plug-in apis.kcp.io/ReservedMetadata.
func NewReservedMetadata(rules.Config) admission.Interface {
	return reservedMetadata{admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (reservedMetadata) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if rules.IsMaster(a.GetUserInfo()) {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil // reviews and options have no metadata
	}
	var oldAnnotations, oldLabels map[string]string
	if a.GetOldObject() != nil {
		old, err := meta.Accessor(a.GetOldObject())
		if err != nil {
			return err
		}
		oldAnnotations, oldLabels = old.GetAnnotations(), old.GetLabels()
	}
	if key, changed := changedReserved(oldAnnotations, obj.GetAnnotations()); changed {
		return rules.Forbid(a, "annotation %q is reserved for the system", key)
	}
	if key, changed := changedReserved(oldLabels, obj.GetLabels()); changed {
		return rules.Forbid(a, "label %q is reserved for the system", key)
	}
	return nil
}

// changedReserved returns the first reserved key that was added, removed or changed.
func changedReserved(old, obj map[string]string) (key string, changed bool) {
	keys := maps.Clone(old)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, obj)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := old[key]
		after, has := obj[key]
		if strings.HasSuffix(key, reservedSuffix) && (had != has || before != after) {
			return key, true
		}
	}
	return "", false
}
