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

// Quota are how much one shard may have in a cache, and its users besides: so much that no shard needs it, and so little that one in wrong
// hands, or with an error, fills neither etcd nor the memory of all who follow. 0 is any amount. They may be exceeded by
// what is being written at the same moment.
type Quota struct {
	// Objects is how many objects there may be.
	Objects int64
	// Bytes is how much of etcd they may take. As much again may be taken by what was replaced or removed so recently that
	// etcd still has it: whoever rewrites objects fills etcd, too.
	Bytes int64
}

// writeKind is a kind of writing.
type writeKind int

const (
	// writeCreate is a new object, grown one that becomes larger, replaced one that does not, reported the shard's own report.
	writeCreate writeKind = iota
	writeGrow
	writeReplace
	writeReport
)

// check returns why who has so much must not write such a thing, "" if they may. They may always remove objects, change
// some without making them larger as long as they do not do so all the time, and a little later still say how they are.
func (b Quota) check(key UsageKey, current Usage, kind writeKind) string {
	total, limit := current.Bytes+current.Replaced, 2*b.Bytes
	if kind == writeReport {
		limit += b.Bytes / 8
	}
	switch {
	case b.Objects > 0 && kind == writeCreate && current.Objects >= b.Objects:
		return fmt.Sprintf("%s has %d objects in this cache, where %d are allowed (--max-objects-per-shard)", key, current.Objects, b.Objects)
	case b.Bytes > 0 && (kind == writeCreate || kind == writeGrow) && current.Bytes >= b.Bytes:
		return fmt.Sprintf("the objects of %s take %d bytes of this cache, where %d are allowed (--max-bytes-per-shard)", key, current.Bytes, b.Bytes)
	case b.Bytes > 0 && total >= limit:
		return fmt.Sprintf("%s takes %d bytes of this cache, %d of them by what was replaced within %s, where twice %d are allowed (--max-bytes-per-shard)",
			key, total, current.Replaced, replacedRetention.Round(time.Minute), b.Bytes)
	}
	return ""
}

// admit refuses what a shard must not write that has too much. existing is nil for a new object.
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
	case quota.check(key, current, writeGrow) != "" && isLarger(existing, obj): // encoding it is not for nothing
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
		klog.InfoS("More than may be is written into the cache, which is refused", "by", key.String(), "reason", problem)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: problem,
		Details: &metav1.StatusDetails{Group: s.resource.Group, Kind: s.resource.Resource, Name: obj.GetName()},
	}}
}

// isLarger tells whether an object takes more bytes than the one whose place it takes.
func isLarger(existing, obj *unstructured.Unstructured) bool {
	before, err := existing.MarshalJSON()
	if err != nil {
		return true
	}
	after, err := obj.MarshalJSON()
	return err != nil || len(after) > len(before)
}
