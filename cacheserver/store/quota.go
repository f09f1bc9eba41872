package store

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/scope"
)

// Quota are the limits of one shard in a cache, and separately of its users: high enough for every shard, and low
// enough that a compromised or faulty shard fills neither etcd nor the memory of its readers. 0 means unlimited.
// Concurrent writes may exceed them.
type Quota struct {
	// Objects is the maximum number of objects.
	Objects int64
	// Bytes is the maximum size in etcd. The same size is available for replaced and deleted revisions that etcd still
	// has: repeated updates fill etcd, too.
	Bytes int64
}

// writeKind classifies a write.
type writeKind int

const (
	// writeCreate adds an object, writeGrow makes one larger, writeReplace does not, writeReport is the shard's own
	// report.
	writeCreate writeKind = iota
	writeGrow
	writeReplace
	writeReport
)

// check returns the reason to reject a write at the current usage, or "". Deletions are always permitted, updates that
// do not grow an object as long as they are not repeated constantly, and reports up to a higher limit.
func (q Quota) check(key UsageKey, current Usage, kind writeKind) string {
	total, limit := current.Bytes+current.Replaced, 2*q.Bytes
	if kind == writeReport {
		limit += q.Bytes / 8
	}
	switch {
	case q.Objects > 0 && kind == writeCreate && current.Objects >= q.Objects:
		return fmt.Sprintf("%s has %d objects in this cache, where %d are allowed (--max-objects-per-shard)", key, current.Objects, q.Objects)
	case q.Bytes > 0 && (kind == writeCreate || kind == writeGrow) && current.Bytes >= q.Bytes:
		return fmt.Sprintf("the objects of %s take %d bytes of this cache, where %d are allowed (--max-bytes-per-shard)", key, current.Bytes, q.Bytes)
	case q.Bytes > 0 && total >= limit:
		return fmt.Sprintf("%s takes %d bytes of this cache, %d of them by what was replaced within %s, where twice %d are allowed (--max-bytes-per-shard)",
			key, total, current.Replaced, replacedRetention.Round(time.Minute), q.Bytes)
	}
	return ""
}

// admit rejects writes of a shard that exceed its quota. existing is nil for a new object.
func (s *Store) admit(ctx context.Context, obj, existing *unstructured.Unstructured) error {
	target, _ := scope.FromContext(ctx)
	key := UsageKey{Shard: target.Shard, Cached: s.resource.IsCached()}
	current, quota := s.backend.usage.get(key), s.backend.config.Quota
	kind := writeReplace
	switch {
	case s.resource.GroupVersionResource == client.Reports && obj.GetName() == target.Shard:
		kind = writeReport
	case existing == nil:
		kind = writeCreate
	case quota.check(key, current, writeGrow) != "" && isLarger(existing, obj): // encoded only if it matters
		kind = writeGrow
	}
	problem := quota.check(key, current, kind)
	if problem == "" {
		return nil
	}
	if s.backend.config.OnQuotaExceeded != nil {
		s.backend.config.OnQuotaExceeded(target.Shard)
	}
	if s.backend.usage.recordRejection(key) {
		klog.InfoS("Rejected a write beyond the quota of the cache", "by", key.String(), "reason", problem)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: problem,
		Details: &metav1.StatusDetails{Group: s.resource.Group, Kind: s.resource.Resource, Name: obj.GetName()},
	}}
}

// isLarger returns whether an object takes more bytes than the one that it replaces.
func isLarger(existing, obj *unstructured.Unstructured) bool {
	before, err := existing.MarshalJSON()
	if err != nil {
		return true
	}
	after, err := obj.MarshalJSON()
	return err != nil || len(after) > len(before)
}
