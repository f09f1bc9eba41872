package etcdkeys

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
)

const (
	// lowPercent is the percentage of etcd's quota in use from which tenants may not store more, criticalPercent that from
	// which they may not rewrite what they have: a rewritten object takes space twice until etcd compacts.
	lowPercent, criticalPercent = 80, 90
	// hysteresisPercent is the part of the quota that must become free before a level ends, so that it does not change with
	// every compaction.
	hysteresisPercent = 5
	// fragmentedPercent is the percentage of the quota that the database file may have, free pages included. etcd raises
	// its alarm by the size of the file.
	fragmentedPercent = 95
	// commitInterval is more than etcd takes to count what was written in the sizes that it reports.
	commitInterval = 200 * time.Millisecond
	// spaceInterval is the interval at which etcd is asked.
	spaceInterval = 10 * time.Second
	// spaceWrittenPercent is the percentage of the quota that may be written before etcd is asked again.
	spaceWrittenPercent = 2
	// spaceTimeout bounds one request.
	spaceTimeout = 5 * time.Second
)

// SpaceLevel says what still fits into etcd.
type SpaceLevel int

const (
	// SpaceOK means that there is enough space.
	SpaceOK SpaceLevel = iota
	// SpaceLow means that tenants may not store more than they have.
	SpaceLow
	// SpaceCritical means that tenants may only delete, and make objects smaller.
	SpaceCritical
)

// Space is the space of the member of etcd that has least left.
type Space struct {
	// Quota is the size of the database file, in bytes, at which etcd refuses all writes; 0 if it has none, or does not
	// report it (before etcd 3.6).
	Quota int64
	// Size is the size of the database file, InUse that without free pages.
	Size, InUse int64
	// NoSpace is true while etcd refuses all writes.
	NoSpace bool

	// previous is the level before.
	previous SpaceLevel
	// uncounted are bytes that this process wrote before etcd was asked, too recently to be surely in Size and InUse.
	uncounted int64
}

// Level returns what still fits.
func (s Space) Level() SpaceLevel {
	switch {
	case s.NoSpace || s.reaches(SpaceCritical, criticalPercent):
		return SpaceCritical
	case s.reaches(SpaceLow, lowPercent) || s.uses(s.Size, fragmentedPercent):
		return SpaceLow
	}
	return SpaceOK
}

// reaches reports whether the watermark of a level is reached, or was and is not left yet.
func (s Space) reaches(level SpaceLevel, percent int64) bool {
	if s.previous >= level {
		percent -= hysteresisPercent
	}
	return s.uses(s.InUse, percent)
}

func (s Space) uses(bytes, percent int64) bool { return s.Quota > 0 && bytes >= s.Quota/100*percent }

// errNoSpace names the next step of an administrator when etcd refuses writes.
var errNoSpace = errors.New("etcd has raised its NOSPACE alarm and refuses writes: delete objects, then compact, defragment and disarm etcd, or raise its quota")

// Err returns an error while etcd refuses all writes.
func (s Space) Err() error {
	if s.NoSpace {
		return errNoSpace
	}
	return nil
}

// Shortage explains to an administrator why the level is not SpaceOK, without the figures of the moment; "" if it is.
func (s Space) Shortage() string {
	switch {
	case s.NoSpace:
		return errNoSpace.Error()
	case s.reaches(SpaceCritical, criticalPercent):
		return fmt.Sprintf("etcd uses more than %d percent of its quota of %s", criticalPercent-hysteresisPercent, s.quota())
	case s.reaches(SpaceLow, lowPercent):
		return fmt.Sprintf("etcd uses more than %d percent of its quota of %s", lowPercent-hysteresisPercent, s.quota())
	case s.uses(s.Size, fragmentedPercent):
		return s.fragmented(fragmentedPercent)
	}
	return ""
}

// CopyShortage explains to an administrator why nothing of other shards is stored, "" if it is. A copy stops where tenants that were refused may
// store again: it does not keep them from storing, and etcd does not stay short after a copy that was given up is removed. The removal does
// not make the database file smaller, so a copy leaves as much to the mark of that, too.
func (s Space) CopyShortage() string {
	s.InUse, s.Size = s.InUse+s.uncounted, s.Size+s.uncounted
	s.previous = max(s.previous, SpaceLow)
	if shortage := s.Shortage(); shortage != "" || !s.uses(s.Size, fragmentedPercent-hysteresisPercent) {
		return shortage
	}
	return s.fragmented(fragmentedPercent - hysteresisPercent)
}

func (s Space) fragmented(percent int64) string {
	return fmt.Sprintf("the database of etcd has, with free pages, more than %d percent of its quota of %s: defragment it", percent, s.quota())
}

func (s Space) quota() string { return resource.NewQuantity(s.Quota, resource.BinarySI).String() }

// worse returns which of two members has less left.
func (s Space) worse(other Space) Space {
	noSpace := s.NoSpace || other.NoSpace
	if other.Level() > s.Level() || (other.Level() == s.Level() && other.InUse > s.InUse) {
		s = other
	}
	s.NoSpace = noSpace
	return s
}

// SpaceMonitor asks etcd how much space it has left. Between two requests it adds what this process has written.
type SpaceMonitor struct {
	scanner *Scanner
	shard   string
	written func() int64
	// due requests an earlier update.
	due chan struct{}

	mu        sync.Mutex
	space     Space
	writtenAt int64
	// counted and next are what had been written when etcd was asked some time before: counted is surely in the sizes of an answer, and
	// next will be, commitInterval after nextAt.
	counted, next int64
	nextAt        time.Time
}

// NewSpaceMonitor returns a monitor of the etcd of a scanner. written returns the bytes that this process has written so
// far; the name of the shard is the label of metrics.
func NewSpaceMonitor(scanner *Scanner, shard string, written func() int64) *SpaceMonitor {
	return &SpaceMonitor{scanner: scanner, shard: shard, written: written, due: make(chan struct{}, 1)}
}

// Space returns the current space; the zero value, which has enough, until etcd was asked.
func (m *SpaceMonitor) Space() Space {
	m.mu.Lock()
	defer m.mu.Unlock()
	space, written := m.space, m.written()-m.writtenAt
	space.InUse, space.Size = space.InUse+written, space.Size+written
	m.space.previous = space.Level()
	if space.uses(written, spaceWrittenPercent) {
		select {
		case m.due <- struct{}{}:
		default:
		}
	}
	return space
}

// Run updates the space until the context ends.
func (m *SpaceMonitor) Run(ctx context.Context) {
	defer m.report(nil)
	ticker := time.NewTicker(spaceInterval)
	defer ticker.Stop()
	for {
		if err := m.update(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Failed to ask etcd for its space, the previous state is kept", "err", err)
		}
		select {
		case <-ticker.C:
		case <-m.due:
		case <-ctx.Done():
			return
		}
	}
}

// update asks all members. A member that does not answer is left out, unless none does.
func (m *SpaceMonitor) update(ctx context.Context) error {
	client, err := m.scanner.Connect()
	if err != nil {
		return err
	}
	written, now := m.written(), time.Now()
	var space Space
	var errs []error
	endpoints := client.Endpoints()
	for _, endpoint := range endpoints {
		member, err := m.spaceOf(ctx, endpoint)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		space = space.worse(member)
	}
	if len(errs) == len(endpoints) {
		return errors.Join(errs...)
	}
	m.mu.Lock()
	m.set(space, written, now)
	m.mu.Unlock()
	m.report(&space)
	return nil
}

// set stores what etcd has answered, and what this process had written before it was asked at a time, while mu is held.
func (m *SpaceMonitor) set(space Space, written int64, asked time.Time) {
	if asked.Sub(m.nextAt) >= commitInterval {
		m.counted, m.next, m.nextAt = m.next, written, asked
	}
	space.previous, space.uncounted = m.space.previous, written-m.counted
	m.space, m.writtenAt = space, written
}

// spaceOf asks one member. The alarms are those of the whole cluster; listing them would be a write.
func (m *SpaceMonitor) spaceOf(ctx context.Context, endpoint string) (Space, error) {
	client, err := m.scanner.Connect()
	if err != nil {
		return Space{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, spaceTimeout)
	defer cancel()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return Space{}, fmt.Errorf("status of etcd at %s: %w", endpoint, err)
	}
	space := Space{Quota: max(status.DbSizeQuota, 0), Size: status.DbSize, InUse: status.DbSizeInUse}
	for _, problem := range status.Errors {
		space.NoSpace = space.NoSpace || strings.Contains(problem, pb.AlarmType_NOSPACE.String())
	}
	return space, nil
}
