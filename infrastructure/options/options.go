// Package options defines the flags of the infrastructure provider, and validates what can be validated without a server.
package options

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/infrastructure/seed"
	"github.com/atoll-dev/atoll/internal/kubeconfig"
)

// DefaultExport is the default name of the APIExport.
const DefaultExport = "infrastructure.providers.kedge.faros.sh"

// SkipSeedTemplates is the environment variable that disables shipped Templates.
const SkipSeedTemplates = "INFRASTRUCTURE_SKIP_SEED_TEMPLATES"

// Options contains the flags.
type Options struct {
	// KcpKubeconfig is the file with the credentials for the provider's workspace.
	KcpKubeconfig string
	// RuntimeKubeconfig is the file with the credentials for the runtime cluster; empty means those of the pod.
	RuntimeKubeconfig string
	// Group is the API group; Export is the name of the APIExport.
	Group, Export string
	// TemplateSelector selects the Templates of the export by their labels; empty selects all.
	TemplateSelector string
	// Binders is the group of users who may bind the export.
	Binders string
	// SeedTemplates selects the shipped Templates that should exist; if empty, the provider creates and deletes none.
	SeedTemplates           []string
	LeaderElectionNamespace string
	MetricsAddress          string
	HealthAddress           string
	Web                     Web
	OpenTofu                OpenTofu
	Tenants                 Tenants
}

// New returns options with the defaults.
func New() *Options {
	return &Options{Group: infrastructurev1alpha1.GroupName, Export: DefaultExport, SeedTemplates: []string{"*"}, MetricsAddress: "127.0.0.1:8086", HealthAddress: "0", Tenants: newTenants()}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.KcpKubeconfig, "kcp-kubeconfig", o.KcpKubeconfig, "kubeconfig for the workspace of the provider; its server URL contains /clusters/ (required)")
	flags.StringVar(&o.RuntimeKubeconfig, "runtime-kubeconfig", o.RuntimeKubeconfig, "kubeconfig for the cluster in which instances run; by default, the service account of the pod is used")
	flags.StringVar(&o.Group, "api-group", o.Group, "API group of Templates and instances; it cannot be changed later")
	flags.StringVar(&o.Export, "apiexport", o.Export, "name of the APIExport, which is created")
	flags.StringVar(&o.TemplateSelector, "template-selector", o.TemplateSelector, "label selector of the templates that the export offers, such as tier!=premium; by default all. Catalogues offer others through exports of their own")
	flags.StringVar(&o.Binders, "binders", o.Binders, "group of users who may bind the export, such as system:authenticated; by default, only who is granted it otherwise, and what a previous value has granted is revoked")
	flags.StringSliceVar(&o.SeedTemplates, "seed-templates", o.SeedTemplates, "shipped templates that shall exist: * for all, a name for one, -name for all but one; those that are not selected are deleted once they have no instances, unless they were edited. Empty, or "+SkipSeedTemplates+"=true in the environment: none is created or deleted")
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace, "namespace in the workspace of the provider for the lease that replicas share; by default, there is one replica")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "host and port of /metrics; 0 switches it off")
	flags.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "host and port of /readyz and /healthz; off by default")
	o.Web.addFlags(flags)
	o.OpenTofu.addFlags(flags)
	o.Tenants.addFlags(flags)
}

// Completed contains validated options.
type Completed struct {
	*Options
	Workspace, Runtime *rest.Config
	// Defaults configure the namespaces of tenants.
	Defaults runtimecluster.Defaults
	// Selector is the parsed TemplateSelector.
	Selector labels.Selector
	// Shipped are the Templates that should exist; if nil, the provider creates and deletes none.
	Shipped []infrastructurev1alpha1.Template
	// FrontProxy is the client configuration of the front proxy, without credentials; nil if --web-address is not set.
	FrontProxy *rest.Config
	// Host is the client configuration of the cluster of the operator, for the console; nil if --web-console-namespace is not set.
	Host *rest.Config
}

// Complete validates the flags. Errors name the flag and the expected value.
func (o *Options) Complete() (*Completed, error) {
	if o.KcpKubeconfig == "" {
		return nil, errors.New("--kcp-kubeconfig: is required")
	}
	if problems := validation.IsDNS1123Subdomain(o.Group); len(problems) > 0 || !strings.Contains(o.Group, ".") {
		return nil, fmt.Errorf("--api-group: got %q, expected a DNS name such as infrastructure.example.org", o.Group)
	}
	if problems := validation.IsDNS1123Subdomain(o.Export); len(problems) > 0 {
		return nil, fmt.Errorf("--apiexport: got %q, expected the name of an object: %s", o.Export, strings.Join(problems, "; "))
	}
	selector, err := labels.Parse(o.TemplateSelector)
	if err != nil {
		return nil, fmt.Errorf("--template-selector: got %q, expected a label selector such as tier!=premium: %w", o.TemplateSelector, err)
	}
	workspace, err := kubeconfig.Load(o.KcpKubeconfig, "")
	if err != nil {
		return nil, fmt.Errorf("--kcp-kubeconfig: %w", err)
	}
	if !strings.Contains(workspace.Host, "/clusters/") {
		return nil, fmt.Errorf("--kcp-kubeconfig: the server is %q, expected the URL of a workspace, which contains /clusters/", workspace.Host)
	}
	runtime, err := runtimeConfig(o.RuntimeKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--runtime-kubeconfig: %w", err)
	}
	if err := o.OpenTofu.validate(); err != nil {
		return nil, err
	}
	defaults, err := o.Tenants.complete()
	if err != nil {
		return nil, err
	}
	for _, config := range []*rest.Config{workspace, runtime} {
		config.QPS = -1 // the server's priority and fairness applies; client-go's default of five requests a second is for people
	}
	shipped, err := o.shipped()
	if err != nil {
		return nil, err
	}
	frontProxy, err := o.Web.complete(workspace)
	if err != nil {
		return nil, err
	}
	host, err := o.Web.host()
	if err != nil {
		return nil, err
	}
	return &Completed{o, workspace, runtime, defaults, selector, shipped, frontProxy, host}, nil
}

func (o *Options) shipped() ([]infrastructurev1alpha1.Template, error) {
	if value := os.Getenv(SkipSeedTemplates); value != "" {
		skip, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("%s: got %q, expected true or false", SkipSeedTemplates, value)
		}
		if skip {
			return nil, nil
		}
	}
	if len(o.SeedTemplates) == 0 {
		return nil, nil
	}
	all, err := seed.Shipped(o.Group)
	if err != nil {
		return nil, err
	}
	for _, entry := range o.SeedTemplates {
		name := strings.TrimPrefix(entry, "-")
		if entry != "*" && !slices.ContainsFunc(all, func(t infrastructurev1alpha1.Template) bool { return t.Name == name }) {
			return nil, fmt.Errorf("--seed-templates: no template %q is shipped", name)
		}
	}
	return seed.Enabled(all, o.SeedTemplates), nil
}

// runtimeConfig returns the client configuration in a file, or that of the pod if file is empty.
func runtimeConfig(file string) (*rest.Config, error) {
	if file == "" {
		return rest.InClusterConfig()
	}
	return kubeconfig.Load(file, "")
}
