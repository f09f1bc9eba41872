package servers

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/options"
)

// checkTimeout bounds the checks at the start.
const checkTimeout = 30 * time.Second

// Export is the APIExport of the agent.
type Export struct {
	Name string
	// Config is for its workspace.
	Config *rest.Config
}

// Check returns an error if the servers of both sides do not respond or do not have the objects that the flags name. Errors include the
// remedy.
func Check(ctx context.Context, config *options.Config) (*Export, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := checkService(ctx, config); err != nil {
		return nil, err
	}
	return findExport(ctx, config)
}

func checkService(ctx context.Context, config *options.Config) error {
	c, err := NewClient(config.Service, workspaces.Namespaces)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	switch err := c.Get(ctx, client.ObjectKey{Name: config.Namespace}, &corev1.Namespace{}); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("--namespace: the service cluster has no namespace %q: create it", config.Namespace)
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return fmt.Errorf("--kubeconfig: the service cluster refuses these credentials, see docs/publishing-agent.md for the permissions that are needed: %w", err)
	case err != nil:
		return fmt.Errorf("--kubeconfig: the service cluster at %s does not answer: %w", config.Service.Host, err)
	}
	return nil
}

// findExport finds the export of the slice.
func findExport(ctx context.Context, config *options.Config) (*Export, error) {
	c, err := NewClient(config.Kcp, EndpointSlices, workspaces.LogicalClusters)
	if err != nil {
		return nil, fmt.Errorf("--kcp-kubeconfig: %w", err)
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	switch err := c.Get(ctx, client.ObjectKey{Name: config.EndpointSlice}, slice); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("--apiexportendpointslice-ref: there is no APIExportEndpointSlice %q in the workspace at %s", config.EndpointSlice, config.Kcp.Host)
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return nil, fmt.Errorf("--kcp-kubeconfig: kcp refuses these credentials, see docs/publishing-agent.md for the permissions that are needed: %w", err)
	case err != nil:
		return nil, fmt.Errorf("--kcp-kubeconfig: the workspace at %s does not answer: %w", config.Kcp.Host, err)
	}
	export := &Export{Name: slice.Spec.APIExport.Name, Config: config.Kcp}
	if slice.Spec.APIExport.Path != "" {
		if export.Config, err = at(config.Kcp, slice.Spec.APIExport.Path); err != nil {
			return nil, err
		}
	}
	if c, err = NewClient(export.Config, workspaces.LogicalClusters); err != nil {
		return nil, err
	}
	if err := c.Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, &corev1alpha1.LogicalCluster{}); err != nil {
		return nil, fmt.Errorf("the workspace %q of the APIExport, which APIExportEndpointSlice %s names, cannot be read: check the path, and that the agent has access to the workspace and may get logicalclusters: %w",
			slice.Spec.APIExport.Path, config.EndpointSlice, err)
	}
	return export, nil
}

// NewClient returns a client that needs no discovery for the given resources.
func NewClient(config *rest.Config, resources ...workspaces.Resource) (client.Client, error) {
	return client.New(config, client.Options{Scheme: Scheme, Mapper: workspaces.NewMapper(nil, resources...)})
}

// at returns the configuration for another workspace of the installation.
func at(config *rest.Config, path string) (*rest.Config, error) {
	parsed, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("--kcp-kubeconfig: %w", err)
	}
	before, _, _ := strings.Cut(parsed.Path, "/clusters/")
	parsed.Path = before + "/clusters/" + path
	moved := rest.CopyConfig(config)
	moved.Host = parsed.String()
	return moved, nil
}

// Remembered returns the stored URLs of all endpoints that an agent has ever used.
func Remembered(c client.Client, config *options.Config) workspaces.Remembered {
	return workspaces.Remembered{Client: c, Key: client.ObjectKey{Namespace: config.Namespace, Name: "endpoints-" + config.AgentName}}
}
