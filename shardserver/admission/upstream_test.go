package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
)

func TestUpstreamPluginsAreKnown(t *testing.T) {
	known := upstreamPlugins.Union(sets.New(Names()...))
	if unknown := sets.New(kubeoptions.AllOrderedPlugins...).Difference(known); unknown.Len() > 0 {
		t.Errorf("plug-ins of Kubernetes that are not listed: %q", sets.List(unknown))
	}
	if gone := upstreamPlugins.Difference(sets.New(kubeoptions.AllOrderedPlugins...)); gone.Len() > 0 {
		t.Errorf("listed plug-ins that Kubernetes does not have: %q", sets.List(gone))
	}
}
