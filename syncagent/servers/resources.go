// Package servers contains what all parts of the agent know about the servers of both sides: the types and resources that they use there,
// the checks at the start, and how a publication is resolved to resources.
package servers

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/dialects"
)

// Scheme has the types that the agent reads and writes.
var Scheme = newScheme()

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, dialects.AddToScheme, apisv1alpha1.AddToScheme, corev1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Resources of workspaces.
var (
	EndpointSlices = workspaces.Resource{GroupVersionKind: apisv1alpha1.SchemeGroupVersion.WithKind("APIExportEndpointSlice"), Resource: "apiexportendpointslices"}
	APIExports     = workspaces.Resource{GroupVersionKind: apisv1alpha1.SchemeGroupVersion.WithKind("APIExport"), Resource: "apiexports"}
)

// Listable returns the resources of a server that support list and the given verbs, each in one version.
func Listable(from discovery.DiscoveryInterface, verbs ...string) ([]workspaces.Resource, error) {
	lists, err := discovery.ServerPreferredResources(from)
	if err != nil {
		return nil, fmt.Errorf("discovering resources: %w", err)
	}
	supports := discovery.SupportsAllVerbs{Verbs: append([]string{"list"}, verbs...)}
	var resources []workspaces.Resource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && supports.Match(list.GroupVersion, &r) {
				resources = append(resources, workspaces.Resource{GroupVersionKind: version.WithKind(r.Kind), Resource: r.Name, Namespaced: r.Namespaced})
			}
		}
	}
	return resources, nil
}
