package quickstart

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// treeParallelism bounds how many workspaces are created concurrently.
	treeParallelism = 8
	// progressInterval is the number of workspaces between two lines of progress.
	progressInterval = 10
)

// treeOptions define the shape of the tree.
type treeOptions struct {
	depth, count int
	seed         int64 // 0 seeds from the clock
}

func (o treeOptions) validate() error {
	if o.depth < 1 || o.count < 1 {
		return fmt.Errorf("--tree-depth and --tree-count must be at least 1, not %d and %d", o.depth, o.count)
	}
	return nil
}

// plan returns the paths of all workspaces of the tree by level, parents before their children. Each workspace is
// equally likely to become the parent of the next, so trees have all shapes.
func (o treeOptions) plan(top logicalcluster.Path, prefix string) [][]logicalcluster.Path {
	random := rand.New(rand.NewSource(o.seed))
	type place struct {
		path  logicalcluster.Path
		level int
	}
	parents := []place{{top, 0}}
	levels := make([][]logicalcluster.Path, o.depth)
	for i := range o.count {
		parent := parents[random.Intn(len(parents))]
		path := parent.path.Join(fmt.Sprintf("%s-ws-%d", prefix, i+1))
		levels[parent.level] = append(levels[parent.level], path)
		if parent.level+1 < o.depth {
			parents = append(parents, place{path, parent.level + 1})
		}
	}
	return levels
}

// treeSteps returns the scenario of many workspaces.
func (s *setup) treeSteps() (steps []step, end logicalcluster.Path, summary string) {
	if s.tree.seed == 0 {
		s.tree.seed = time.Now().UnixNano()
	}
	levels := s.tree.plan(s.organization(), s.prefix)
	steps = []step{
		s.organizationStep(),
		{fmt.Sprintf("Creating %d workspaces (seed %d)", s.tree.count, s.tree.seed), func(ctx context.Context) error { return s.createTree(ctx, levels) }},
	}
	return steps, s.organization(), fmt.Sprintf(`There are %[1]d workspaces below %[2]s.

  kubectl ws :%[2]s
  kubectl ws tree
`, s.tree.count, s.organization())
}

// createTree creates level after level, so that parents exist before their children.
func (s *setup) createTree(ctx context.Context, levels [][]logicalcluster.Path) error {
	p := &progress{setup: s, started: time.Now()}
	for depth, level := range levels {
		p.depth = depth + 1
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(treeParallelism)
		for _, path := range level {
			group.Go(func() error {
				if _, err := s.ensureWorkspace(ctx, path, universalType); err != nil {
					return err
				}
				p.add()
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for _, path := range level {
			if !s.withSamples {
				break
			}
			if err := s.createObject(ctx, path, configMaps, "default", newSample(path)); err != nil {
				return err
			}
		}
	}
	return nil
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func newSample(path logicalcluster.Path) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": "quickstart"},
		"data":       map[string]any{"path": path.String()},
	}}
}

// progress reports how many workspaces of the tree exist.
type progress struct {
	*setup
	started time.Time
	depth   int

	mu   sync.Mutex
	done int
}

func (p *progress) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.done%progressInterval == 0 || p.done == p.tree.count {
		rate := float64(p.done) / max(time.Since(p.started).Seconds(), 0.001)
		p.printf("  Progress: %d/%d workspaces created (%.1f ws/s, depth so far: %d)\n", p.done, p.tree.count, rate, p.depth)
	}
}
