package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Config is what a Manager needs.
type Config struct {
	Registry *storage.Registry
	// Controllers run together, share their watches, and have different names.
	Controllers []Controller
	// Tasks run beside the controllers, in the same replica, until their context ends. They are what follows a set of
	// resources that is not known beforehand.
	Tasks []func(context.Context)
	// Election makes the controllers run in one replica of the shard at a time; nil runs them at once.
	Election *Election
}

// Manager runs a set of controllers.
type Manager struct {
	cfg Config
}

// NewManager refuses a set of controllers that could not be told apart, or that cannot work.
func NewManager(cfg Config) (*Manager, error) {
	names := sets.New[string]()
	for _, c := range cfg.Controllers {
		if c.Name == "" || names.Has(c.Name) {
			return nil, fmt.Errorf("controller name %q is empty or used twice", c.Name)
		}
		if len(c.Inputs) == 0 || c.Reconcile == nil {
			return nil, fmt.Errorf("controller %q has nothing to follow or nothing to do", c.Name)
		}
		names.Insert(c.Name)
	}
	if cfg.Election != nil {
		if err := cfg.Election.validate(); err != nil {
			return nil, err
		}
	}
	return &Manager{cfg: cfg}, nil
}

// Run blocks until the context ends and every goroutine it started has returned. With an election it waits for its
// turn, and for the next one after it lost the lease.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.Election == nil {
		m.runControllers(ctx)
		return nil
	}
	return m.cfg.Election.run(ctx, m.runControllers)
}

// runControllers runs every controller until the context ends. It can be called again: nothing survives a call.
func (m *Manager) runControllers(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var all []*running
	for _, c := range m.cfg.Controllers {
		r := newRunning(c)
		all = append(all, r)
	}
	for _, s := range sources(m.cfg.Registry, all) {
		group.Go(func() { s.run(ctx) })
	}
	for _, r := range all {
		group.Go(func() {
			r.unheard.Wait()
			r.Run(ctx)
		})
	}
	for _, task := range m.cfg.Tasks {
		group.Go(func() { task(ctx) })
	}
	group.Wait()
}
