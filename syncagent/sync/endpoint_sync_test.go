package sync

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
)

// After a failure the status is not ready, independent of what the informer has read.
func TestFailedEndpointIsNotReady(t *testing.T) {
	w := &endpointSync{parent: &publicationSync{changed: func() {}}, informer: workspaces.NewInformer(nil, "", nil, workspaces.Handler{})}
	w.failed(errors.New("the workers did not start"))
	if err := w.status(); !errors.Is(err, errUnreachable) {
		t.Errorf("the status is %v", err)
	}
}

// A related resource that is not served does not affect the other entries.
func TestRelatedResourcesAreResolvedOneByOne(t *testing.T) {
	server := func(resources ...metav1.APIResource) *fakediscovery.FakeDiscovery {
		return &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: resources}}}}
	}
	secret, settings := metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true}, metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}
	specs := []syncagentv1alpha1.RelatedResourceSpec{
		{Identifier: "gone", Origin: syncagentv1alpha1.RelatedResourceOriginService, Kind: "ConfigMap"},
		{Identifier: "secret", Origin: syncagentv1alpha1.RelatedResourceOriginKcp, Kind: "Secret"},
	}
	resolved, err := resolveRelated(specs, server(secret, settings), server(secret))
	if err != nil || len(resolved) != 2 {
		t.Fatalf("got %v, %v", resolved, err)
	}
	if resolved[0].Unresolved == nil || resolved[1].Unresolved != nil || resolved[1].Copy.Kind != "Secret" {
		t.Errorf("got %+v", resolved)
	}
	later, err := resolveRelated(specs, server(secret, settings), server(secret, settings))
	if err != nil || later[0].Unresolved != nil || sameRelated(resolved, later) {
		t.Errorf("later, got %+v, %v", later, err)
	}
}
