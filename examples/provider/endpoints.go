package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

// endpoints runs one controller for every URL of the export. There is one URL per shard with consumers, so the first
// binding on a shard adds a URL and the last one removes it.
type endpoints struct {
	client.Client
	config *rest.Config
	slice  string

	ctx     context.Context // the controllers outlive one reconciliation
	group   *errgroup.Group
	running map[string]context.CancelFunc // by URL; accessed only by Reconcile, which is not concurrent
}

// Reconcile compares the URLs of the slice with the running controllers.
func (e *endpoints) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name != e.slice {
		return ctrl.Result{}, nil
	}
	var slice apisv1alpha1.APIExportEndpointSlice
	if err := e.Get(ctx, req.NamespacedName, &slice); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	wanted := map[string]bool{}
	for _, endpoint := range slice.Status.APIExportEndpoints {
		wanted[endpoint.URL] = true
		if e.running[endpoint.URL] != nil {
			continue
		}
		if err := e.start(endpoint.URL); err != nil {
			return ctrl.Result{}, fmt.Errorf("starting at %s: %w", endpoint.URL, err)
		}
	}
	for url, stop := range e.running {
		if !wanted[url] {
			stop()
			delete(e.running, url)
		}
	}
	return ctrl.Result{}, nil
}

// start runs the controller of databases behind one URL. A controller that fails ends the process, as with managers.
func (e *endpoints) start(url string) error {
	behind, err := newWorkspaces(e.config, url)
	if err != nil {
		return err
	}
	skipNames := true // one controller of that name per URL
	c, err := controller.NewTypedUnmanaged("databases", controller.TypedOptions[request]{
		Reconciler: &databases{behind}, MaxConcurrentReconciles: 10, SkipNameValidation: &skipNames, Logger: ctrl.Log,
	})
	if err != nil {
		return err
	}
	if err := c.Watch(&allWorkspaces{behind: behind, group: e.group, synced: make(chan struct{})}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(e.ctx)
	e.running[url] = stop
	e.group.Go(func() error { return c.Start(ctx) })
	return nil
}
