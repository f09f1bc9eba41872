// Command infrastructure-provider serves a catalogue of Templates to workspaces, and provides what tenants create from them. It binds flags
// and registers the backends; everything else is in package infrastructure and those below.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no public CAs
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/kro"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/mcp"
	"github.com/atoll-dev/atoll/infrastructure/options"
	"github.com/atoll-dev/atoll/infrastructure/portal"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/infrastructure/web"
	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/internal/gomemlimit"
	"github.com/atoll-dev/atoll/internal/processlog"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := options.New()
	cmd := &cobra.Command{
		Use:   "infrastructure-provider",
		Short: "Serve a catalogue of templates to workspaces, and provide what tenants create from them",
		Long: `The infrastructure provider turns each Template of its workspace into a kind that tenants who bind its APIExport can create. A backend
makes the instances real; tenants see kinds, status and outputs, but no backend. The backends "kro" (graphs of objects that
depend on each other) and "manifest" (objects) apply objects in a runtime cluster, in a namespace per tenant; "opentofu" runs OpenTofu in
Jobs there.`,
		Example: `  # In a pod of the cluster in which instances run; all authenticated users may bind the catalogue
  infrastructure-provider --kcp-kubeconfig=/etc/kcp/kubeconfig --binders=system:authenticated

  # Another API group and export, outside of the cluster
  infrastructure-provider --kcp-kubeconfig=kcp.kubeconfig --runtime-kubeconfig=runtime.kubeconfig \
    --api-group=infrastructure.example.org --apiexport=infrastructure.example.org`,
		Version:       buildversion.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			completed, err := o.Complete()
			if err != nil {
				return err
			}
			gomemlimit.Set()
			return run(cmd.Context(), completed)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}

// run registers the backends and runs the provider.
func run(ctx context.Context, o *options.Completed) error {
	logger := processlog.Set(false, false)
	runtime, err := runtimecluster.NewClient(o.Runtime)
	if err != nil {
		return fmt.Errorf("connecting to the runtime cluster: %w", err)
	}
	objects, err := metadata.NewForConfig(o.Runtime)
	if err != nil {
		return fmt.Errorf("connecting to the runtime cluster: %w", err)
	}
	workspace, err := client.New(o.Workspace, client.Options{Scheme: infrastructure.NewScheme(o.Group)})
	if err != nil {
		return fmt.Errorf("connecting to the workspace of the provider: %w", err)
	}
	schemas, err := discovery.NewDiscoveryClientForConfig(o.Runtime)
	if err != nil {
		return fmt.Errorf("connecting to the runtime cluster: %w", err)
	}
	cluster := runtimecluster.Config{Group: o.Group, Export: o.Export, Runtime: runtime, Metadata: objects, Defaults: o.Defaults, Log: logger}
	graphs, err := kro.New(kro.Config{Config: cluster, Discovery: schemas})
	if err != nil {
		return err
	}
	all := []backend.Backend{graphs, manifest.New(cluster)}
	if o.OpenTofu.Image != "" {
		all = append(all, opentofu.New(opentofu.Config{Config: cluster, Image: o.OpenTofu.Image, Namespace: o.OpenTofu.Namespace, Unrestricted: o.OpenTofu.AllowPrograms}))
	}
	backends := &backend.Registry{}
	for _, b := range all {
		if err := backends.Register(b); err != nil {
			return err
		}
	}
	server, err := listen(o, logger)
	if err != nil {
		return err
	}
	return infrastructure.Run(ctx, infrastructure.Config{
		Workspace: o.Workspace, Catalogue: catalogue.Options{Group: o.Group, Export: o.Export, Binders: o.Binders, Selector: o.Selector}, Backends: backends,
		Instances: &instance.View{Workspace: o.Workspace, Client: workspace, Export: o.Export}, Shipped: o.Shipped,
		LeaderElectionNamespace: o.LeaderElectionNamespace, MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress, Web: server, Log: logger,
	})
}

// listen listens at --web-address; nil without it.
func listen(o *options.Completed, logger logr.Logger) (*web.Server, error) {
	if o.FrontProxy == nil {
		return nil, nil // there is no server
	}
	_, provider, _ := strings.Cut(o.Workspace.Host, "/clusters/")
	provider = strings.TrimSuffix(provider, "/")
	protocol, err := mcp.NewHandler(mcp.Config{FrontProxy: o.FrontProxy, Group: o.Group, Export: provider + ":" + o.Export, Limits: mcp.DefaultLimits(), Log: logger.WithName("mcp")})
	if err != nil {
		return nil, fmt.Errorf("the MCP server: %w", err)
	}
	page, err := portal.Handler(portal.Config{
		Group: o.Group, Export: o.Export, Workspace: provider, Console: o.Web.Console, Installation: o.Host != nil,
		OIDC: portal.OIDC{IssuerURL: o.Web.OIDCIssuerURL, ClientID: o.Web.OIDCClientID},
	})
	if err != nil {
		return nil, fmt.Errorf("the portal: %w", err)
	}
	var installation *web.Installation
	if o.Host != nil {
		installation = &web.Installation{Host: o.Host, Namespace: o.Web.ConsoleNamespace}
	}
	server, err := web.Listen(o.Web.Address, o.Web.CertFile, o.Web.KeyFile, web.Config{
		FrontProxy: o.FrontProxy, UI: page, MCP: protocol, Installation: installation, Limits: web.DefaultLimits(), Log: logger.WithName("web"),
	})
	if err != nil {
		return nil, fmt.Errorf("--web-address: %w", err)
	}
	return server, nil
}
