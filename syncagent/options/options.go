// Package options contains the flags of the sync agent, and the validation that needs no server.
package options

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/kubeconfig"
)

// Controllers that --disabled-controllers accepts.
const (
	APIExportController         = "apiexport"
	APIResourceSchemaController = "apiresourceschema"
	SyncController              = "sync"
)

var controllers = []string{APIExportController, APIResourceSchemaController, SyncController}

// OrphanPolicy is what the agent does about copies whose source was deleted while the agent could not act.
type OrphanPolicy string

// The orphan policies.
const (
	// KeepOrphans reports them.
	KeepOrphans OrphanPolicy = "Keep"
	// DeleteOrphans reports and deletes them.
	DeleteOrphans OrphanPolicy = "Delete"
)

// Clusters are the flags for the two sides, which are common to all commands.
type Clusters struct {
	// KcpKubeconfig is the file with the credentials for the workspace of the APIExportEndpointSlice.
	KcpKubeconfig string
	// EndpointSlice is the name of the APIExportEndpointSlice.
	EndpointSlice string
	// Kubeconfig is the file with the credentials for the service cluster; if it is empty, the agent uses the service account of its pod.
	Kubeconfig string
	// HostOverride and CAFileOverride override fields of Kubeconfig.
	HostOverride, CAFileOverride string
	// Namespace is the namespace of states and leases on the service cluster.
	Namespace string
	// AgentName is the value of the label of copies.
	AgentName string
	// PublishedResourceSelector selects PublishedResources by their labels.
	PublishedResourceSelector string
}

// Options are the flags of the agent.
type Options struct {
	Clusters

	EnableLeaderElection bool
	MetricsAddress       string
	HealthAddress        string
	DisabledControllers  []string
	OrphanPolicy         string
	LogDebug             bool
	LogFormat            string
}

// New returns Options with the defaults.
func New() *Options {
	return &Options{MetricsAddress: "127.0.0.1:8085", OrphanPolicy: string(KeepOrphans), LogFormat: "JSON"}
}

// AddFlags adds the flags of the two sides.
func (cl *Clusters) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&cl.KcpKubeconfig, "kcp-kubeconfig", cl.KcpKubeconfig,
		"kubeconfig for the workspace of the APIExportEndpointSlice; its server URL contains /clusters/ (required)")
	flags.StringVar(&cl.EndpointSlice, "apiexportendpointslice-ref", cl.EndpointSlice, "name of the APIExportEndpointSlice (required)")
	flags.StringVar(&cl.Namespace, "namespace", cl.Namespace, "namespace on the service cluster for the state of objects and for leases (required)")
	flags.StringVar(&cl.Kubeconfig, "kubeconfig", cl.Kubeconfig, "kubeconfig for the service cluster; by default, the service account of the pod is used")
	flags.StringVar(&cl.AgentName, "agent-name", cl.AgentName,
		"name of this agent, a DNS-1035 label that no other agent on the service cluster has; copies are labelled with it, so it must stay the same (default <slice>-syncagent)")
	flags.StringVar(&cl.PublishedResourceSelector, "published-resource-selector", cl.PublishedResourceSelector,
		"label selector of the PublishedResources of this agent; by default, all")
	flags.StringVar(&cl.HostOverride, "kubeconfig-host-override", cl.HostOverride, "server URL of the service cluster, in place of the one in its kubeconfig")
	flags.StringVar(&cl.CAFileOverride, "kubeconfig-ca-file-override", cl.CAFileOverride,
		"file with the certificate authorities of the service cluster, in place of those in its kubeconfig")
}

// AddFlags adds all flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Clusters.AddFlags(flags)
	flags.BoolVar(&o.EnableLeaderElection, "enable-leader-election", o.EnableLeaderElection, "let one of several replicas work; the lease is syncagent.<agent name>")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "host and port of /metrics; 0 switches it off")
	flags.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "host and port of /readyz and /healthz; off by default")
	flags.StringSliceVar(&o.DisabledControllers, "disabled-controllers", o.DisabledControllers, "controllers that do not run: "+strings.Join(controllers, ", "))
	flags.StringVar(&o.OrphanPolicy, "orphan-policy", o.OrphanPolicy,
		"what happens to copies whose workspace was unbound or deleted while the agent could not act: Keep reports them, Delete reports and deletes them")
	flags.BoolVar(&o.LogDebug, "log-debug", o.LogDebug, "log more")
	flags.StringVar(&o.LogFormat, "log-format", o.LogFormat, "JSON or Console")
}

// Config are validated Clusters.
type Config struct {
	// Kcp is the configuration for the workspace of the slice.
	Kcp           *rest.Config
	Service       *rest.Config
	EndpointSlice string
	Namespace     string
	AgentName     string
	// Selector selects PublishedResources.
	Selector labels.Selector
}

// Completed are validated Options.
type Completed struct {
	Config

	LeaderElection                bool
	MetricsAddress, HealthAddress string
	OrphanPolicy                  OrphanPolicy
	disabled                      []string
}

// Enabled reports whether a controller runs.
func (c *Completed) Enabled(controller string) bool { return !slices.Contains(c.disabled, controller) }

// Complete validates the flags. Errors name the flag and its expected value.
func (o *Options) Complete() (*Completed, error) {
	for _, name := range o.DisabledControllers {
		if !slices.Contains(controllers, name) {
			return nil, fmt.Errorf("--disabled-controllers: got %q, expected some of %s", name, strings.Join(controllers, ", "))
		}
	}
	policy := OrphanPolicy(o.OrphanPolicy)
	if policy != KeepOrphans && policy != DeleteOrphans {
		return nil, fmt.Errorf("--orphan-policy: got %q, expected Keep or Delete", o.OrphanPolicy)
	}
	if o.LogFormat != "JSON" && o.LogFormat != "Console" {
		return nil, fmt.Errorf("--log-format: got %q, expected JSON or Console", o.LogFormat)
	}
	config, err := o.Clusters.Complete()
	if err != nil {
		return nil, err
	}
	return &Completed{
		Config: *config, LeaderElection: o.EnableLeaderElection, MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress,
		OrphanPolicy: policy, disabled: o.DisabledControllers,
	}, nil
}

// Complete validates the flags of the two sides.
func (cl *Clusters) Complete() (*Config, error) {
	for _, required := range []struct{ flag, value, meaning string }{
		{"kcp-kubeconfig", cl.KcpKubeconfig, "a kubeconfig for the workspace of the APIExportEndpointSlice"},
		{"apiexportendpointslice-ref", cl.EndpointSlice, "the name of the APIExportEndpointSlice"},
		{"namespace", cl.Namespace, "a namespace of the service cluster, for the state of the agent"},
	} {
		if required.value == "" {
			return nil, fmt.Errorf("--%s is required: %s", required.flag, required.meaning)
		}
	}
	c := &Config{EndpointSlice: cl.EndpointSlice, Namespace: cl.Namespace, AgentName: cl.AgentName}
	if c.AgentName == "" {
		c.AgentName = cl.EndpointSlice + "-syncagent"
	}
	if problems := validation.IsDNS1035Label(c.AgentName); len(problems) > 0 {
		return nil, fmt.Errorf("--agent-name: %q: %s", c.AgentName, problems[0])
	}
	if problems := validation.IsDNS1123Label(c.Namespace); len(problems) > 0 {
		return nil, fmt.Errorf("--namespace: %q: %s", c.Namespace, problems[0])
	}
	var err error
	if c.Selector, err = labels.Parse(cl.PublishedResourceSelector); err != nil {
		return nil, fmt.Errorf("--published-resource-selector: %w", err)
	}
	if c.Kcp, err = loadKcp(cl.KcpKubeconfig); err != nil {
		return nil, fmt.Errorf("--kcp-kubeconfig: %w", err)
	}
	if c.Service, err = cl.loadService(); err != nil {
		return nil, err
	}
	return c, nil
}

// loadKcp reads a kubeconfig for a workspace.
func loadKcp(file string) (*rest.Config, error) {
	config, err := kubeconfig.Load(file, "")
	if err != nil {
		return nil, err
	}
	parsed, err := url.Parse(config.Host)
	if err != nil || !strings.Contains(parsed.Path, "/clusters/") {
		return nil, fmt.Errorf("the server %q is not the URL of a workspace: it has to end with /clusters/ and the path of the workspace of the APIExportEndpointSlice", config.Host)
	}
	return config, nil
}

func (cl *Clusters) loadService() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if cl.Kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("--kubeconfig is not set, and there is no service account of a pod: %w", err)
		}
		if cl.HostOverride != "" {
			config.Host = cl.HostOverride
		}
	} else if config, err = kubeconfig.LoadForServer(cl.Kubeconfig, cl.HostOverride); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	if cl.CAFileOverride != "" {
		if _, err := os.Stat(cl.CAFileOverride); err != nil {
			return nil, fmt.Errorf("--kubeconfig-ca-file-override: %w", err)
		}
		config.CAFile, config.CAData = cl.CAFileOverride, nil
	}
	return config, nil
}
