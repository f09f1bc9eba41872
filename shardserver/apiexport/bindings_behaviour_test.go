package apiexport_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func TestBindings(t *testing.T) {
	s := newEnv(t)
	for name, test := range map[string]func(*testing.T, *env){
		"publish and bind":                                             testPublishAndBind,
		"a binding waits for its export":                               testMissingExport,
		"a binding waits for the identity of its export":               testMissingIdentity,
		"a binding waits for a schema":                                 testMissingSchema,
		"bindings without a LogicalCluster are not bound":              testMissingLogicalCluster,
		"the oldest binding reserves the resource":                     testFirstBindingWins,
		"a definition of the workspace reserves the resource":          testDefinitionReservesResource,
		"resources with conflicting names are not bound":               testNameConflicts,
		"updates of the export are bound":                              testExportUpdates,
		"a binding survives deletion and recreation of its export":     testExportRecreation,
		"a bound resource keeps its scope":                             testChangedScope,
		"a bound resource without a definition holds no other binding": testMissingDefinition,
		"extra annotations are copied from the export to its bindings": testExtraAnnotations,
		"missing or invalid reservations are restored":                 testReservationsAreRestored,
		"the reservation of a definition expires":                      testReservationExpiry,
		"endpoints are listed while the export has bindings":           testEndpointsFollowBindings,
		"every kind has a type in OpenAPI v2":                          testTypesForClients,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &env{Shard: s.Shard, Client: s.Client, t: t})
		})
	}
}

// newResource returns a group-resource that no other test uses.
func (e *env) newResource(plural string) schema.GroupResource {
	return schema.GroupResource{Group: e.uniqueName() + ".example.io", Resource: plural}
}

// uniqueName returns a name that no other test uses.
func (e *env) uniqueName() string {
	_, test, sub := strings.Cut(e.t.Name(), "/")
	if !sub {
		test = e.t.Name()
	}
	name := strings.ToLower(strings.ReplaceAll(test, "_", ""))
	return name[:min(30, len(name))]
}

// newProviderAndConsumer returns the logical clusters of two new workspaces.
func (e *env) newProviderAndConsumer() (provider, consumer string) {
	clusters := e.newWorkspaces(e.uniqueName()+"-p", e.uniqueName()+"-c")
	return clusters[0], clusters[1]
}

// createBinding creates a binding without waiting.
func (e *env) createBinding(cluster, name, provider, export string) {
	e.t.Helper()
	if err := e.Create(clusterContext(cluster), newBinding(name, provider, export)); err != nil {
		e.t.Fatal(err)
	}
}

func newBinding(name, provider, export string) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
			Export: &apisv1alpha2.ExportBindingReference{Path: provider, Name: export},
		}},
	}
}

func isBound(binding *apisv1alpha2.APIBinding) error {
	if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
		return fmt.Errorf("phase is %q", binding.Status.Phase)
	}
	return hasCondition(conditionsv1alpha1.Ready, "")(binding)
}

func isBinding(binding *apisv1alpha2.APIBinding) error {
	if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBinding {
		return fmt.Errorf("phase is %q", binding.Status.Phase)
	}
	return nil
}

// bindsResources is satisfied by a binding with exactly these bound resources.
func bindsResources(plurals ...string) func(*apisv1alpha2.APIBinding) error {
	return func(binding *apisv1alpha2.APIBinding) error {
		var got []string
		for _, bound := range binding.Status.BoundResources {
			got = append(got, bound.Resource)
		}
		if strings.Join(got, " ") != strings.Join(plurals, " ") {
			return fmt.Errorf("bound are %v, want %v", got, plurals)
		}
		return nil
	}
}

func messageContains(condition conditionsv1alpha1.Type, parts ...string) func(*apisv1alpha2.APIBinding) error {
	return func(binding *apisv1alpha2.APIBinding) error {
		message := conditionsv1alpha1.GetMessage(binding, condition)
		for _, part := range parts {
			if !strings.Contains(message, part) {
				return fmt.Errorf("message of %s is %q, want %q", condition, message, part)
			}
		}
		return nil
	}
}

// testPublishAndBind is flow 12.2 of the contract, as far as controllers implement it.
func testPublishAndBind(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	export := s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	resourceSchema := &apisv1alpha1.APIResourceSchema{}
	if err := s.Get(clusterContext(provider), client.ObjectKey{Name: "v1." + widgets.String()}, resourceSchema); err != nil {
		t.Fatal(err)
	}
	got := binding.Status.BoundResources[0]
	if len(binding.Status.BoundResources) != 1 || got.Schema.IdentityHash != export.Status.IdentityHash || got.Schema.UID != string(resourceSchema.UID) ||
		got.Schema.Name != resourceSchema.Name || strings.Join(got.StorageVersions, " ") != "v1" || binding.Status.APIExportClusterName != provider {
		t.Errorf("status is %+v", binding.Status)
	}
	if err := allOf(isBound, hasCondition(apisv1alpha2.APIExportValid, ""), hasCondition(apisv1alpha2.InitialBindingCompleted, ""), hasCondition(apisv1alpha2.BindingUpToDate, ""),
		hasCondition(apisv1alpha2.PermissionClaimsValid, ""), hasCondition(apisv1alpha2.PermissionClaimsApplied, ""))(binding); err != nil {
		t.Errorf("%v; conditions %+v", err, binding.Status.Conditions)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	masters := s.Shard.Client(t, s.Masters(t))
	if err := masters.Get(clusterContext("system:bound-crds"), client.ObjectKey{Name: string(resourceSchema.UID)}, definition); err != nil {
		t.Fatal(err)
	}
	if definition.Annotations[apisv1alpha2.SchemaClusterAnnotationKey] != provider || definition.Annotations[apisv1alpha2.SchemaNameAnnotationKey] != resourceSchema.Name {
		t.Errorf("annotations of the definition are %v", definition.Annotations)
	}
}

func testMissingExport(t *testing.T, s *env) {
	// A reference to the logical cluster of another workspace requires permission to bind there, which requires an
	// export.
	cluster := s.newWorkspaces(s.uniqueName())[0]
	s.createBinding(cluster, "late", "", "late")
	s.waitForBinding(cluster, "late", allOf(isBinding, hasCondition(apisv1alpha2.APIExportValid, apisv1alpha2.APIExportNotFoundReason), messageContains(apisv1alpha2.APIExportValid, cluster+":late"),
		hasCondition(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.WaitingForEstablishedReason), hasCondition(conditionsv1alpha1.Ready, apisv1alpha2.WaitingForEstablishedReason)))
	s.NewExport(t, cluster, "late", s.newResource("widgets"), "Widget")
	s.waitForBinding(cluster, "late", allOf(isBound, bindsResources("widgets"), hasCondition(apisv1alpha2.APIExportValid, "")))
}

func testMissingIdentity(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	if err := s.Create(clusterContext(provider), &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "secretive"},
		Spec:       apisv1alpha2.APIExportSpec{Identity: &apisv1alpha2.Identity{SecretRef: &corev1.SecretReference{Namespace: "default", Name: "identity"}}},
	}); err != nil {
		t.Fatal(err)
	}
	s.createBinding(consumer, "secretive", provider, "secretive")
	s.waitForBinding(consumer, "secretive", allOf(isBinding, hasCondition(apisv1alpha2.APIExportValid, apisv1alpha2.MissingIdentityHashReason)))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "identity"}, Data: map[string][]byte{"key": []byte("given")}}
	if err := s.Create(clusterContext(provider), secret); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "secretive", allOf(isBound, bindsResources(), hasCondition(apisv1alpha2.APIExportValid, "")))
}

func testMissingSchema(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets, gadgets := s.newResource("widgets"), s.newResource("gadgets")
	s.NewExport(t, provider, "both", widgets, "Widget", withResource(gadgets))
	s.createBinding(consumer, "both", provider, "both")
	s.waitForBinding(consumer, "both", allOf(isBinding, bindsResources(), hasCondition(apisv1alpha2.APIExportValid, apisv1alpha2.InternalErrorReason), messageContains(apisv1alpha2.APIExportValid, "v1."+gadgets.String())))
	if err := s.Create(clusterContext(provider), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "both", allOf(isBound, bindsResources("gadgets", "widgets"), hasCondition(apisv1alpha2.APIExportValid, "")))
}

// withResource adds a resource to an export.
func withResource(gr schema.GroupResource, prefix ...string) func(*apisv1alpha2.APIExport) {
	return func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources = append(export.Spec.Resources, apisv1alpha2.ResourceSchema{
			Name: gr.Resource, Group: gr.Group, Schema: append(prefix, "v1")[0] + "." + gr.String(),
			Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
		})
	}
}

func testMissingLogicalCluster(t *testing.T, s *env) {
	provider := s.newWorkspaces(s.uniqueName())[0]
	s.NewExport(t, provider, "widgets", s.newResource("widgets"), "Widget")
	masters := s.Shard.Client(t, s.Masters(t))
	mastersEnv := &env{Shard: s.Shard, Client: masters, t: t}
	mastersEnv.createBinding("nowhere", "widgets", provider, "widgets")
	mastersEnv.waitForBinding("nowhere", "widgets", allOf(isBinding, bindsResources(), hasCondition(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.LogicalClusterNotFoundReason)))
}

func testFirstBindingWins(t *testing.T, s *env) {
	clusters := s.newWorkspaces(s.uniqueName()+"-1", s.uniqueName()+"-2", s.uniqueName()+"-c")
	widgets, gadgets := s.newResource("widgets"), s.newResource("gadgets")
	s.NewExport(t, clusters[0], "one", widgets, "Widget")
	if err := s.Create(clusterContext(clusters[1]), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	s.NewExport(t, clusters[1], "two", widgets, "Widget", withResource(gadgets))
	consumer := clusters[2]
	s.Bind(t, consumer, clusters[0], "one")
	s.createBinding(consumer, "two", clusters[1], "two")
	s.waitForBinding(consumer, "two", allOf(isBinding, bindsResources("gadgets"), hasCondition(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		hasCondition(apisv1alpha2.BindingUpToDate, apisv1alpha2.NamingConflictsReason), messageContains(apisv1alpha2.BindingUpToDate, `APIBinding "one"`, widgets.String())))
	s.expectReservations(consumer, map[string]string{widgets.String(): "one", gadgets.String(): "two"})
	if err := s.Delete(clusterContext(consumer), newBinding("one", "", "")); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "two", allOf(isBound, bindsResources("gadgets", "widgets"), hasCondition(apisv1alpha2.BindingUpToDate, "")))
	s.expectReservations(consumer, map[string]string{widgets.String(): "two", gadgets.String(): "two"})
}

// expectReservations waits until these resources of a logical cluster are reserved for bindings of these names, or for
// definitions if the name is "".
func (e *env) expectReservations(cluster string, want map[string]string) {
	e.t.Helper()
	shardtesting.Eventually(e.t, "the reservations of "+cluster, func(ctx context.Context) error {
		logicalCluster := &corev1alpha1.LogicalCluster{}
		if err := e.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: "cluster"}, logicalCluster); err != nil {
			return err
		}
		annotation, exists := logicalCluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]
		if !exists {
			return errors.New("there are none")
		}
		for resource, owner := range want {
			reservation := fmt.Sprintf("%q:{%q:%q}", resource, "n", owner)
			if owner == "" {
				reservation = fmt.Sprintf("%q:{%q:true}", resource, "c")
			}
			if !strings.Contains(annotation, reservation) {
				return fmt.Errorf("reservations are %s, without %s", annotation, reservation)
			}
		}
		return nil
	})
}

// createDefinition creates a definition in a workspace, and waits until it is served.
func (e *env) createDefinition(cluster string, gr schema.GroupResource, kind string) *apiextensionsv1.CustomResourceDefinition {
	e.t.Helper()
	return e.createDefinitionUntil(cluster, gr, kind, apiextensionsv1.Established, apiextensionsv1.ConditionTrue)
}

// createDefinitionUntil creates a definition in a workspace, and waits for a condition.
func (e *env) createDefinitionUntil(cluster string, gr schema.GroupResource, kind string, wanted apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus) *apiextensionsv1.CustomResourceDefinition {
	e.t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: gr.String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gr.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gr.Resource, Singular: strings.TrimSuffix(gr.Resource, "s"), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	if err := e.Create(clusterContext(cluster), definition); err != nil {
		e.t.Fatal(err)
	}
	shardtesting.Eventually(e.t, "definition "+definition.Name, func(ctx context.Context) error {
		if err := e.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == wanted && condition.Status == status {
				return nil
			}
		}
		return fmt.Errorf("%s is not %s: %v", wanted, status, definition.Status.Conditions)
	})
	return definition
}

func testDefinitionReservesResource(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	definition := s.createDefinition(consumer, widgets, "Widget")
	s.expectReservations(consumer, map[string]string{widgets.String(): ""})
	s.createBinding(consumer, "widgets", provider, "widgets")
	s.waitForBinding(consumer, "widgets", allOf(isBinding, bindsResources(), hasCondition(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		messageContains(apisv1alpha2.InitialBindingCompleted, `CustomResourceDefinition "`+widgets.String()+`"`)))
	if err := s.Delete(clusterContext(consumer), definition); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("widgets")))
	s.expectReservations(consumer, map[string]string{widgets.String(): "widgets"})
	// A definition that is created later gets neither the reservation nor the names of the bound resource.
	s.createDefinitionUntil(consumer, widgets, "Widget", apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse)
	s.createDefinitionUntil(consumer, s.newResource("gadgets"), "Widget", apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse)
	s.createDefinitionUntil(consumer, schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, "Workspace", apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse)
	s.expectReservations(consumer, map[string]string{widgets.String(): "widgets"})
}

func testNameConflicts(t *testing.T, s *env) {
	clusters := s.newWorkspaces(s.uniqueName()+"-1", s.uniqueName()+"-2", s.uniqueName()+"-c")
	s.NewExport(t, clusters[0], "one", s.newResource("widgets"), "Widget")
	s.NewExport(t, clusters[1], "two", s.newResource("things"), "Widget")
	consumer := clusters[2]
	s.Bind(t, consumer, clusters[0], "one")
	s.createBinding(consumer, "two", clusters[1], "two")
	s.waitForBinding(consumer, "two", allOf(isBinding, bindsResources(), hasCondition(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		messageContains(apisv1alpha2.InitialBindingCompleted, `singular name "widget"`, `APIBinding "one"`, clusters[0]+":one")))
	if err := s.Delete(clusterContext(consumer), newBinding("one", "", "")); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "two", allOf(isBound, bindsResources("things")))
	// The same with a definition of the workspace.
	s.createDefinition(consumer, s.newResource("gadgets"), "Gadget")
	s.NewExport(t, clusters[0], "three", s.newResource("devices"), "Gadget")
	s.createBinding(consumer, "three", clusters[0], "three")
	s.waitForBinding(consumer, "three", allOf(isBinding, hasCondition(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		messageContains(apisv1alpha2.InitialBindingCompleted, `singular name "gadget"`, `CustomResourceDefinition "gadgets`)))
}

// update updates an object until there is no conflict.
func update[T client.Object](s *env, cluster, name string, object T, mutate func(T)) {
	s.t.Helper()
	shardtesting.Eventually(s.t, "changing "+name, func(ctx context.Context) error {
		if err := s.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		mutate(object)
		return s.Update(shardtesting.In(ctx, cluster), object)
	})
}

func testExportUpdates(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets, gadgets := s.newResource("widgets"), s.newResource("gadgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	first := s.Bind(t, consumer, "root:"+s.uniqueName()+"-p", "widgets")

	// One more resource, with its schema, and a claim.
	if err := s.Create(clusterContext(provider), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	update(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) {
		withResource(gadgets)(export)
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"}}}
	})
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("gadgets", "widgets"), hasCondition(apisv1alpha2.BindingUpToDate, ""), func(binding *apisv1alpha2.APIBinding) error {
		if claims := binding.Status.ExportPermissionClaims; len(claims) != 1 || claims[0].Resource != "configmaps" {
			return fmt.Errorf("claims of the export are %+v", claims)
		}
		return nil
	}))

	// Another schema with another storage version.
	next := shardtesting.NewSchema("v2", widgets, "Widget")
	next.Spec.Versions[0].Name = "v2"
	if err := s.Create(clusterContext(provider), next); err != nil {
		t.Fatal(err)
	}
	update(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) { export.Spec.Resources[0].Schema = next.Name })
	s.waitForBinding(consumer, "widgets", allOf(isBound, func(binding *apisv1alpha2.APIBinding) error {
		got := binding.Status.BoundResources[1]
		if got.Schema.UID != string(next.UID) || strings.Join(got.StorageVersions, " ") != "v1 v2" || got.Schema.IdentityHash != first.Status.BoundResources[0].Schema.IdentityHash {
			return fmt.Errorf("bound is %+v", got)
		}
		return nil
	}))

	// Resources that the export no longer offers stay bound.
	update(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources, export.Spec.PermissionClaims = export.Spec.Resources[:1], nil
	})
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("gadgets", "widgets"), hasCondition(apisv1alpha2.BindingUpToDate, ""), func(binding *apisv1alpha2.APIBinding) error {
		if len(binding.Status.ExportPermissionClaims) > 0 {
			return errors.New("the claims of the export remain")
		}
		return nil
	}))
}

func testExportRecreation(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	export := s.NewExport(t, provider, "widgets", s.newResource("widgets"), "Widget")
	s.Bind(t, consumer, provider, "widgets")
	if err := s.Delete(clusterContext(provider), export); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("widgets"), hasCondition(apisv1alpha2.APIExportValid, apisv1alpha2.APIExportNotFoundReason)))
	recreated := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: apisv1alpha2.APIExportSpec{Resources: export.Spec.Resources}}
	if err := s.Create(clusterContext(provider), recreated); err != nil {
		t.Fatal(err)
	}
	// The identity secret remains, so the new export has the same identity.
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("widgets"), hasCondition(apisv1alpha2.APIExportValid, ""), func(binding *apisv1alpha2.APIBinding) error {
		if got := binding.Status.BoundResources[0].Schema.IdentityHash; got != export.Status.IdentityHash {
			return fmt.Errorf("identity is %s, was %s", got, export.Status.IdentityHash)
		}
		return nil
	}))
}

func testExtraAnnotations(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	const key = "extra.apis.kcp.io/team"
	s.NewExport(t, provider, "widgets", s.newResource("widgets"), "Widget", func(export *apisv1alpha2.APIExport) {
		export.Annotations = map[string]string{key: "red", "other": "x"}
	})
	s.createBinding(consumer, "widgets", provider, "widgets")
	annotated := func(want string) func(*apisv1alpha2.APIBinding) error {
		return func(binding *apisv1alpha2.APIBinding) error {
			if got := binding.Annotations[key]; got != want || binding.Annotations["other"] != "" {
				return fmt.Errorf("annotations are %v", binding.Annotations)
			}
			return nil
		}
	}
	s.waitForBinding(consumer, "widgets", allOf(isBound, annotated("red")))
	update(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) { export.Annotations[key] = "blue" })
	s.waitForBinding(consumer, "widgets", annotated("blue"))
	update(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) { delete(export.Annotations, key) })
	s.waitForBinding(consumer, "widgets", annotated(""))
}

func testReservationsAreRestored(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets, definedResource := s.newResource("widgets"), s.newResource("devices")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.createDefinition(consumer, definedResource, "Device")
	s.Bind(t, consumer, provider, "widgets")
	want := map[string]string{widgets.String(): "widgets", definedResource.String(): ""}
	s.expectReservations(consumer, want)
	for _, value := range []string{"null", `"{"`} {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, corev1alpha1.ResourceBindingsAnnotationKey, value)
		cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
		if err := s.Patch(clusterContext(consumer), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
		s.expectReservations(consumer, want)
	}
}

func testReservationExpiry(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets, gadgets := s.newResource("widgets"), s.newResource("gadgets")
	if err := s.Create(clusterContext(provider), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	s.NewExport(t, provider, "both", widgets, "Widget", withResource(gadgets))
	reservations := fmt.Sprintf(`{%q:{"c":true,"e":%q},%q:{"c":true,"e":%q}}`,
		widgets.String(), time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), gadgets.String(), time.Now().Add(3*time.Second).UTC().Format(time.RFC3339))
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, corev1alpha1.ResourceBindingsAnnotationKey, reservations)
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	if err := s.Patch(clusterContext(consumer), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	s.createBinding(consumer, "both", provider, "both")
	s.waitForBinding(consumer, "both", allOf(isBinding, bindsResources("widgets"), messageContains(apisv1alpha2.InitialBindingCompleted, `CustomResourceDefinition "gadgets`)))
	s.waitForBinding(consumer, "both", allOf(isBound, bindsResources("gadgets", "widgets")))
	s.expectReservations(consumer, map[string]string{widgets.String(): "both", gadgets.String(): "both"})
}

func testEndpointsFollowBindings(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	s.NewExport(t, provider, "widgets", s.newResource("widgets"), "Widget")
	expectEndpoints := func(want int) {
		t.Helper()
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		shardtesting.Eventually(t, "the endpoints of the slice", func(ctx context.Context) error {
			if err := s.Get(shardtesting.In(ctx, provider), client.ObjectKey{Name: "widgets"}, slice); err != nil {
				return err
			}
			if got := slice.Status.APIExportEndpoints; len(got) != want || (want > 0 && !strings.HasSuffix(got[0].URL, "/services/apiexport/"+provider+"/widgets")) {
				return fmt.Errorf("endpoints are %+v, conditions %+v", got, slice.Status.Conditions)
			}
			return nil
		})
	}
	expectEndpoints(0)
	binding := s.Bind(t, consumer, provider, "widgets")
	expectEndpoints(1)
	if err := s.Delete(clusterContext(consumer), binding); err != nil {
		t.Fatal(err)
	}
	expectEndpoints(0)
}
