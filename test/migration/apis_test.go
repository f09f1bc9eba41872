package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// exported is an export with one namespaced kind.
type exported struct {
	schema.GroupVersionResource
	kind, cluster, name string
}

// everywhere returns a client that sends requests to the logical cluster of the context, through the front proxy.
func (e *env) everywhere(t *testing.T) client.Client {
	t.Helper()
	config := e.Admin(t, "root")
	config.Host = e.URL
	c, err := loopback.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// export creates an export in a logical cluster, which claims config maps.
func (e *env) export(t *testing.T, cluster, resource, kind string) exported {
	t.Helper()
	gr := schema.GroupResource{Group: resource + ".example.io", Resource: resource}
	shardtesting.NewExport(t, e.everywhere(t), cluster, resource, gr, kind, func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{claimOfConfigMaps}
	})
	return exported{GroupVersionResource: gr.WithVersion("v1"), kind: kind, cluster: cluster, name: resource}
}

var claimOfConfigMaps = apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"}}

// bind binds an export in a logical cluster, and accepts its claim.
func (e *env) bind(t *testing.T, cluster string, export exported) {
	t.Helper()
	shardtesting.Bind(t, e.everywhere(t), cluster, export.cluster, export.name, func(binding *apisv1alpha2.APIBinding) {
		binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{{
			PermissionClaim: claimOfConfigMaps, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimAccepted,
		}}
	})
}

// dynamicAt returns a client for custom resources.
func dynamicAt(t *testing.T, config *rest.Config, url string) dynamic.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Host = url
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// objects returns a client for the exported kind in a logical cluster, through the front proxy.
func (e *env) objects(t *testing.T, export exported, cluster string) dynamic.ResourceInterface {
	t.Helper()
	return dynamicAt(t, e.Admin(t, cluster), e.URL+"/clusters/"+cluster).Resource(export.GroupVersionResource).Namespace(metav1.NamespaceDefault)
}

// viewURL returns the URL of the view of an export on a shard.
func (e *env) viewURL(export exported, shard string) string {
	return e.ServerURL(shard) + "/services/apiexport/" + export.cluster + "/" + export.name
}

// viewClient returns a client for all consumers of an export on a shard.
func (e *env) viewClient(t *testing.T, export exported, shard string) dynamic.Interface {
	t.Helper()
	return dynamicAt(t, e.Admin(t, "root"), e.viewURL(export, shard)+"/clusters/*")
}

// view returns a client for the exported kind in all consumers on a shard.
func (e *env) view(t *testing.T, export exported, shard string) dynamic.ResourceInterface {
	t.Helper()
	return e.viewClient(t, export, shard).Resource(export.GroupVersionResource)
}

// create creates an object of an exported kind when the API is served.
func (e *env) create(t *testing.T, export exported, cluster, name string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": export.GroupVersion().String(), "kind": export.kind, "metadata": map[string]any{"name": name}, "spec": map[string]any{"of": cluster},
	}}
	var created *unstructured.Unstructured
	shardtesting.Eventually(t, "the creation of "+name, func(ctx context.Context) (err error) {
		created, err = e.objects(t, export, cluster).Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	return created
}

// names returns "<logical cluster>/<name>" of listed objects, sorted.
func names(list *unstructured.UnstructuredList) []string {
	all := make([]string, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, logicalcluster.Of(&list.Items[i]).String()+"/"+list.Items[i].GetName())
	}
	slices.Sort(all)
	return all
}

// endpoints returns the addresses in the endpoint slice of an export.
func (e *env) endpoints(ctx context.Context, c client.Client, export exported) ([]string, error) {
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	if err := c.Get(shardtesting.In(ctx, export.cluster), client.ObjectKey{Name: export.name}, slice); err != nil {
		return nil, err
	}
	var all []string
	for _, endpoint := range slice.Status.APIExportEndpoints {
		all = append(all, endpoint.URL)
	}
	slices.Sort(all)
	return all, nil
}

// waitEndpoints waits until the endpoint slice of an export has the addresses of these shards only.
func (e *env) waitEndpoints(t *testing.T, export exported, shards ...string) {
	t.Helper()
	var want []string
	for _, shard := range shards {
		want = append(want, e.viewURL(export, shard))
	}
	slices.Sort(want)
	c := e.everywhere(t)
	shardtesting.Eventually(t, "the endpoints of "+export.name, func(ctx context.Context) error {
		got, err := e.endpoints(ctx, c, export)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	})
}

// isBound returns an error unless a binding is Bound and all its conditions are True.
func isBound(binding *apisv1alpha2.APIBinding) error {
	var problems []string
	if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
		problems = append(problems, "phase "+string(binding.Status.Phase))
	}
	for _, condition := range binding.Status.Conditions {
		if condition.Status != "True" {
			problems = append(problems, fmt.Sprintf("%s is %s: %s", condition.Type, condition.Status, condition.Message))
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
