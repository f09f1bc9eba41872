package workspacelimits

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// countTimeout is how long a request waits for the first count of a limit that was just set.
	countTimeout = 10 * time.Second
	// deliveryTimeout is how long the watch may take to deliver a Workspace after the request that created it. A request
	// that failed counts as long.
	deliveryTimeout = 5 * time.Second
)

// Exceeded is a limit that a new Workspace would exceed.
type Exceeded struct {
	// Path is that of the logical cluster with the limit, Annotation the name of the limit, and Limit its value.
	Path       logicalcluster.Path
	Annotation string
	Limit      int64
}

// Reserve checks the limits for a new Workspace in a logical cluster, and counts it unless the request is a dry run. The
// Workspace counts until the watch delivers it, or some seconds after the end of the context. The error is AlreadyExists if
// there is a Workspace of the name; otherwise it means that the limits cannot be checked at the moment.
func (t *Tracker) Reserve(ctx context.Context, cluster logicalcluster.Name, path logicalcluster.Path, name string, dryRun bool) (*Exceeded, error) {
	t.mu.Lock()
	limiting := t.above(path)
	t.mu.Unlock()
	if len(limiting) == 0 {
		return nil, nil
	}
	if err := t.checkAbsent(ctx, cluster, name); err != nil {
		return nil, err
	}
	if err := waitUntilCounted(ctx, limiting); err != nil {
		return nil, err
	}
	if err := t.startCheck(ctx); err != nil {
		return nil, err
	}
	defer t.endCheck()
	exceeded, err := t.checkChildren(ctx, cluster, name, limiting)
	if err != nil || exceeded != nil {
		return exceeded, err
	}
	used, err := t.usedElsewhere(ctx, limiting)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range limiting {
		if e.limits.Descendants != None && used[e.cluster]+e.stored+t.reservedBelow(e.path, workspaceKey{cluster, name}) >= e.limits.Descendants {
			return &Exceeded{e.path, corev1alpha1.MaxDescendantWorkspacesAnnotationKey, e.limits.Descendants}, nil
		}
	}
	if !dryRun {
		t.reserve(ctx, workspaceKey{cluster, name}, path)
	}
	return nil, nil
}

// checkAbsent returns AlreadyExists if a Workspace exists, as storage would: such a request is not refused at the limit, and
// reserves nothing. If storage had to answer, a Workspace that is deleted in between would be created again without a check.
func (t *Tracker) checkAbsent(ctx context.Context, cluster logicalcluster.Name, name string) error {
	ctx = logicalcluster.With(ctx, cluster)
	existing, err := t.children.Get(ctx, "", name)
	if err == nil { // the watch cache may still have one that is deleted
		existing, err = t.children.GetLatest(ctx, "", name)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the workspace: %w", err)
	}
	exists := apierrors.NewAlreadyExists(workspaces, name)
	if existing.DeletionTimestamp != nil {
		exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
	}
	return exists
}

// startCheck waits until no other check runs; endCheck must follow.
func (t *Tracker) startCheck(ctx context.Context) error {
	select {
	case t.checking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for other checks of limits: %w", context.Cause(ctx))
	}
}

func (t *Tracker) endCheck() { <-t.checking }

func waitUntilCounted(ctx context.Context, entries []*entry) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	for _, e := range entries {
		select {
		case <-e.counted:
		case <-ctx.Done():
			return fmt.Errorf("the workspaces below %s are being counted", e.path)
		}
	}
	return nil
}

// checkChildren checks the lowest limit of children that applies to a logical cluster. Callers must be between
// startCheck and endCheck: no other request reserves between the list and the check.
func (t *Tracker) checkChildren(ctx context.Context, cluster logicalcluster.Name, name string, limiting []*entry) (*Exceeded, error) {
	var lowest *Exceeded
	names := map[string]bool{}
	t.mu.Lock()
	for _, e := range limiting {
		if limit := e.limits.Children; limit != None && (lowest == nil || limit < lowest.Limit) {
			lowest = &Exceeded{e.path, corev1alpha1.MaxChildWorkspacesAnnotationKey, limit}
		}
	}
	for key := range t.reserved {
		if key.cluster == cluster {
			names[key.name] = true
		}
	}
	t.mu.Unlock()
	if lowest == nil {
		return nil, nil
	}
	children, err := t.children.List(logicalcluster.With(ctx, cluster), "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces of %s: %w", cluster, err)
	}
	for _, child := range children {
		names[child.Name] = true
	}
	delete(names, name) // of a request that failed before, or one that fails because the name exists
	if int64(len(names)) >= lowest.Limit {
		return lowest, nil
	}
	return nil, nil
}

// usedElsewhere returns how many Workspaces other shards have published, by entry.
func (t *Tracker) usedElsewhere(ctx context.Context, entries []*entry) (map[logicalcluster.Name]int64, error) {
	used := map[logicalcluster.Name]int64{}
	for _, e := range entries {
		counts, err := t.remote.List(logicalcluster.With(ctx, e.cluster), "", nil)
		if err != nil {
			return nil, fmt.Errorf("reading the workspaces below %s on other shards: %w", e.path, err)
		}
		for _, count := range counts {
			used[e.cluster] += max(count.Spec.Workspaces, 0)
		}
	}
	return used, nil
}

// reservedBelow returns the number of reservations at or below a path, without the one of the key. Callers must hold mu.
func (t *Tracker) reservedBelow(path logicalcluster.Path, except workspaceKey) (number int64) {
	for key, reserved := range t.reserved {
		if key != except && reserved.path.HasPrefix(path) {
			number++
		}
	}
	return number
}

// reserve counts a Workspace that the watch has not delivered yet. Callers must hold mu.
func (t *Tracker) reserve(ctx context.Context, key workspaceKey, path logicalcluster.Path) {
	reserved := &reservation{path}
	t.reserved[key] = reserved
	context.AfterFunc(ctx, func() {
		time.AfterFunc(deliveryTimeout, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.reserved[key] == reserved {
				delete(t.reserved, key)
			}
		})
	})
}
