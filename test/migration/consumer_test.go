package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// moveConsumer moves a workspace that has bound two exports. Nobody on the destination has bound the first one before.
func moveConsumer(t *testing.T, e *env) {
	provider, _ := e.workspace(t, "consumer-provider", installation.Root)
	cowboys, saloons := e.export(t, provider.Spec.Cluster, "cowboys", "Cowboy"), e.export(t, provider.Spec.Cluster, "saloons", "Saloon")
	unrelated := e.export(t, provider.Spec.Cluster, "ranches", "Ranch")
	moving, c := e.workspace(t, "consumer-moving", installation.Alpha)
	staying, _ := e.workspace(t, "consumer-staying", installation.Alpha)
	resident, _ := e.workspace(t, "consumer-resident", installation.Beta)
	lc := moving.Spec.Cluster
	for cluster, exports := range map[string][]exported{
		lc: {cowboys, saloons}, staying.Spec.Cluster: {cowboys, saloons, unrelated}, resident.Spec.Cluster: {saloons, unrelated},
	} {
		for _, export := range exports {
			e.bind(t, cluster, export)
			e.create(t, export, cluster, export.name+"-of-"+cluster)
		}
	}
	plain := e.definePlain(t, c, lc)
	claimed := put(t, c, "claimed")
	e.waitEndpoints(t, cowboys, installation.Alpha)
	e.waitEndpoints(t, saloons, installation.Alpha, installation.Beta)
	before := e.describe(t, c, lc, claimed.Name, cowboys, saloons, plain)

	ending := []*openWatch{
		open(t, "a watch of cowboys at the origin", e.view(t, cowboys, installation.Alpha)),
		open(t, "a watch of saloons at the origin", e.view(t, saloons, installation.Alpha)),
		open(t, "a watch of saloons at the destination", e.view(t, saloons, installation.Beta)),
	}
	staysOpen := []*openWatch{
		open(t, "a watch of another export at the origin", e.view(t, unrelated, installation.Alpha)),
		open(t, "a watch of another export at the destination", e.view(t, unrelated, installation.Beta)),
		open(t, "a watch of another consumer at the origin", e.objects(t, cowboys, staying.Spec.Cluster)),
		open(t, "a watch of another consumer at the destination", e.objects(t, saloons, resident.Spec.Cluster)),
	}
	atOrigin := inform(t, e.viewClient(t, cowboys, installation.Alpha), cowboys.GroupVersionResource)

	engine := e.startEngine(t, cowboys, lc, "cowboys-of-"+lc)

	e.move(t, "consumer", lc, installation.Beta)
	if !e.isAnnounced(t, cowboys, installation.Beta, ending[0]) {
		t.Error("the destination was not in the endpoint slice before the switch")
	}
	atDestination := inform(t, e.viewClient(t, cowboys, installation.Beta), cowboys.GroupVersionResource)
	e.waitPhase(t, "consumer", migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	if after := e.describe(t, c, lc, claimed.Name, cowboys, saloons, plain); !maps.Equal(before, after) {
		t.Errorf("after the move there are\n%v\nwant\n%v", after, before)
	}
	for _, w := range ending {
		w.expectEnd(t)
	}
	for _, w := range staysOpen {
		w.expectOpen(t)
	}
	e.expectViews(t, cowboys, lc)
	e.expectViews(t, saloons, lc)
	atOrigin.checkNoDeletions(t)
	atDestination.checkNoDeletions(t)
	if !atDestination.has("cowboys-of-" + lc) {
		t.Error("a controller does not see the moved object at the destination")
	}
	engine.check(t)
	// Another consumer is left on the origin.
	e.waitEndpoints(t, cowboys, installation.Alpha, installation.Beta)
	e.moveTo(t, "consumer-staying", staying, e.at(t, "root:consumer-staying"), installation.Beta)
	e.waitEndpoints(t, cowboys, installation.Beta)
	e.create(t, cowboys, lc, "later")
}

// definePlain creates a definition and an object of it in a logical cluster.
func (e *env) definePlain(t *testing.T, c client.Client, cluster string) exported {
	t.Helper()
	plain := exported{
		GroupVersionResource: schema.GroupVersionResource{Group: "horses.example.io", Version: "v1", Resource: "horses"},
		kind:                 "Horse", cluster: cluster, name: "horses",
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plain.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: plain.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plain.Resource, Singular: "horse", Kind: plain.kind, ListKind: plain.kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: plain.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
	if err := c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	e.create(t, plain, cluster, "plain")
	return plain
}

// isAnnounced waits until the endpoint slice of an export has a shard. It reports whether that is so before a watch at the origin ends.
func (e *env) isAnnounced(t *testing.T, export exported, shard string, atOrigin *openWatch) bool {
	t.Helper()
	c, announced := e.everywhere(t), false
	shardtesting.Eventually(t, "the endpoint of "+shard, func(ctx context.Context) error {
		select {
		case <-atOrigin.ended:
			return nil
		default:
		}
		all, err := e.endpoints(ctx, c, export)
		announced = slices.Contains(all, e.viewURL(export, shard))
		if err == nil && !announced {
			err = fmt.Errorf("endpoints %v", all)
		}
		return err
	})
	return announced
}

// describe returns what a consumer has: objects with their UIDs, the labels of claimed objects, and the resources in discovery. It does
// not try again.
func (e *env) describe(t *testing.T, c client.Client, cluster, claimed string, kinds ...exported) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, kind := range kinds {
		list, err := e.objects(t, kind, cluster).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("listing %s: %v", kind.name, err)
		}
		for _, object := range list.Items {
			all[kind.name+"/"+object.GetName()] = string(object.GetUID())
		}
		binding := &apisv1alpha2.APIBinding{}
		switch err := c.Get(t.Context(), client.ObjectKey{Name: kind.name}, binding); {
		case apierrors.IsNotFound(err) && kind.cluster == cluster:
		case err != nil:
			t.Fatal(err)
		default:
			if err := isBound(binding); err != nil {
				t.Errorf("binding %s: %v", kind.name, err)
			}
			all["identity of "+kind.name] = fmt.Sprint(binding.Status.BoundResources)
		}
	}
	object := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: claimed}, object); err != nil {
		t.Fatal(err)
	}
	all["labels of "+claimed] = fmt.Sprint(object.Labels)
	client, err := discovery.NewDiscoveryClientForConfig(e.Admin(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		resources, err := client.ServerResourcesForGroupVersion(kind.GroupVersion().String())
		if err != nil {
			t.Fatalf("discovery of %s: %v", kind.name, err)
		}
		all["discovery of "+kind.name] = fmt.Sprint(len(resources.APIResources))
	}
	return all
}

// expectViews waits until the origin's view lists nothing of a logical cluster and the destination's its object.
func (e *env) expectViews(t *testing.T, export exported, cluster string) {
	t.Helper()
	want := cluster + "/" + export.name + "-of-" + cluster
	shardtesting.Eventually(t, "the views of "+export.name, func(ctx context.Context) error {
		origin, err := e.view(t, export, installation.Alpha).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		destination, err := e.view(t, export, installation.Beta).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if slices.Contains(names(origin), want) || !slices.Contains(names(destination), want) {
			return fmt.Errorf("the origin lists %v, the destination %v", names(origin), names(destination))
		}
		return nil
	})
}
