package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// parallelism bounds the requests in flight.
const parallelism = 8

// usage is what a workspace has used in a month.
type usage struct {
	gets, lists, watches, writes, others   float64
	watchSeconds, receivedBytes, sentBytes float64
	// stored is nil if it is not known: for past months, and while the shard counts others.
	stored *stored
}

type stored struct{ objects, bytes float64 }

func (u *usage) requests() float64 { return u.gets + u.lists + u.watches + u.writes + u.others }

// add adds the usage of another workspace. The sum of what is stored is not known unless both are.
func (u *usage) add(other usage) {
	u.gets += other.gets
	u.lists += other.lists
	u.watches += other.watches
	u.writes += other.writes
	u.others += other.others
	u.watchSeconds += other.watchSeconds
	u.receivedBytes += other.receivedBytes
	u.sentBytes += other.sentBytes
	if u.stored == nil || other.stored == nil {
		u.stored = nil
		return
	}
	u.stored = &stored{u.stored.objects + other.stored.objects, u.stored.bytes + other.stored.bytes}
}

// node is a workspace of the tree.
type node struct {
	path     logicalcluster.Path
	usage    usage
	children []*node
	// errs are why the usage or the children could not be read.
	errs []error
}

// reader reads the tree level by level.
type reader struct {
	installation   *connection.Installation
	month, current string

	// progress gets a line each second, because a large tree takes minutes.
	progress io.Writer
	mu       sync.Mutex
	count    int
	reported time.Time
}

// progressInterval is the time between two lines of progress.
const progressInterval = time.Second

// report counts a workspace that was read, and prints how many were if it is time.
func (r *reader) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count++; time.Since(r.reported) >= progressInterval {
		r.reported = time.Now()
		fmt.Fprintf(r.progress, "%d workspaces are read\n", r.count)
	}
}

func (r *reader) read(ctx context.Context, top logicalcluster.Path) (*node, error) {
	tree := &node{path: top}
	for level := []*node{tree}; len(level) > 0; {
		var group errgroup.Group
		group.SetLimit(parallelism)
		for _, one := range level {
			group.Go(func() error {
				r.readOne(ctx, one)
				r.report()
				return nil
			})
		}
		_ = group.Wait() // errors are in the nodes
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		var next []*node
		for _, one := range level {
			next = append(next, one.children...)
		}
		level = next
	}
	return tree, nil
}

func (r *reader) readOne(ctx context.Context, one *node) {
	page, err := r.installation.Metrics(ctx, one.path)
	if err == nil {
		one.usage, err = r.parse(page)
	}
	if err != nil {
		one.errs = append(one.errs, fmt.Errorf("workspace %q: %w", one.path, err))
	}
	workspaces, err := r.installation.List(ctx, one.path, connection.Workspaces)
	if err != nil {
		one.errs = append(one.errs, err)
	}
	for i := range workspaces {
		_, isMount, _ := unstructured.NestedMap(workspaces[i].Object, "spec", "mount")
		url, _, _ := unstructured.NestedString(workspaces[i].Object, "spec", "URL")
		if !isMount && url != "" { // otherwise nothing of it is in the installation, or not yet
			one.children = append(one.children, &node{path: one.path.Join(workspaces[i].GetName())})
		}
	}
	slices.SortFunc(one.children, func(a, b *node) int { return strings.Compare(a.path.String(), b.path.String()) })
}

// parse returns the usage in the month from the text format of Prometheus.
func (r *reader) parse(page []byte) (usage, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return usage{}, fmt.Errorf("reading its /metrics: %w", err)
	}
	var u usage
	if families["atoll_usage_requests_total"] == nil {
		return u, errors.New("its server does not serve usage: it is older, or not a shard")
	}
	for _, metric := range families["atoll_usage_requests_total"].GetMetric() {
		classes := map[string]*float64{"get": &u.gets, "list": &u.lists, "watch": &u.watches, "write": &u.writes}
		if label(metric, "month") != r.month {
			continue
		}
		to := classes[label(metric, "class")]
		if to == nil {
			to = &u.others
		}
		*to += metric.GetCounter().GetValue()
	}
	for name, to := range map[string]*float64{
		"atoll_usage_watch_seconds_total": &u.watchSeconds, "atoll_usage_received_bytes_total": &u.receivedBytes, "atoll_usage_sent_bytes_total": &u.sentBytes,
	} {
		for _, metric := range families[name].GetMetric() {
			if label(metric, "month") == r.month {
				*to += metric.GetCounter().GetValue()
			}
		}
	}
	objects, size := families["atoll_usage_stored_objects"].GetMetric(), families["atoll_usage_stored_bytes"].GetMetric()
	if r.month == r.current && len(objects) == 1 && len(size) == 1 {
		u.stored = &stored{objects[0].GetGauge().GetValue(), size[0].GetGauge().GetValue()}
	}
	return u, nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
