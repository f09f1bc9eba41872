// Command provider is an example: the controller of an API that many workspaces use. It serves Databases to all
// consumers that bind its APIExport, whichever workspace or shard they are in. Read README.md first.
//
// main.go and endpoints.go watch the URLs of the export, source.go watches the objects of all workspaces behind one of
// them, and database.go reconciles databases.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

func main() {
	slice := flag.String("endpoint-slice", "databases", "Name of the APIExportEndpointSlice in the workspace of the kubeconfig")
	flag.Parse() // also parses --kubeconfig
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), config, *slice)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves databases until the context ends. config is for the provider's workspace.
func run(ctx context.Context, config *rest.Config, slice string) error {
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if err := apisv1alpha1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	follow := &endpoints{Client: mgr.GetClient(), config: config, slice: slice, ctx: ctx, group: group, running: map[string]context.CancelFunc{}}
	skipNames := true // several may run in one process, as in the tests
	err = ctrl.NewControllerManagedBy(mgr).For(&apisv1alpha1.APIExportEndpointSlice{}).
		WithOptions(controller.Options{SkipNameValidation: &skipNames}).Complete(follow)
	if err != nil {
		return err
	}
	group.Go(func() error { return mgr.Start(ctx) })
	return group.Wait()
}
