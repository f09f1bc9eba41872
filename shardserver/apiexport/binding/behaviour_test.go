package binding_test

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
		"publish and bind":                                      publishAndBind,
		"a binding waits for its export":                        waitsForExport,
		"a binding waits for the identity of its export":        waitsForIdentity,
		"a binding waits for a schema":                          waitsForSchema,
		"nothing can be bound outside of logical clusters":      needsLogicalCluster,
		"who came first has the resource":                       firstComeFirstServed,
		"a definition of the workspace has the resource":        definitionsHoldResources,
		"names that another resource has cannot be bound":       namesConflict,
		"a binding follows its export":                          followsExport,
		"a binding outlives its export and meets the next":      outlivesExport,
		"extra annotations go from the export to its bindings":  extraAnnotations,
		"locks that are lost or broken are made anew":           locksAreMadeAnew,
		"a definition may come until its lock runs out":         locksRunOut,
		"an address is listed as long as the export has a user": addressesFollowBindings,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &env{Shard: s.Shard, Client: s.Client, t: t})
		})
	}
}

// resource returns a group-resource that no other test has.
func (s *env) resource(plural string) schema.GroupResource {
	return schema.GroupResource{Group: s.unique() + ".example.io", Resource: plural}
}

// unique returns a name that no other test has.
func (s *env) unique() string {
	_, test, sub := strings.Cut(s.t.Name(), "/")
	if !sub {
		test = s.t.Name()
	}
	name := strings.ToLower(strings.ReplaceAll(test, "_", ""))
	return name[:min(30, len(name))]
}

// pair returns the logical clusters of two new workspaces.
func (s *env) pair() (provider, consumer string) {
	clusters := s.workspaces(s.unique()+"-p", s.unique()+"-c")
	return clusters[0], clusters[1]
}

// bind creates a binding and waits for nothing.
func (s *env) bind(cluster, name, provider, export string) {
	s.t.Helper()
	if err := s.Create(in(cluster), newBinding(name, provider, export)); err != nil {
		s.t.Fatal(err)
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

func bound(binding *apisv1alpha2.APIBinding) error {
	if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
		return fmt.Errorf("phase is %q", binding.Status.Phase)
	}
	return says(conditionsv1alpha1.Ready, "")(binding)
}

func binding(binding *apisv1alpha2.APIBinding) error {
	if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBinding {
		return fmt.Errorf("phase is %q", binding.Status.Phase)
	}
	return nil
}

// binds is true of a binding that has bound these resources and no others.
func binds(plurals ...string) func(*apisv1alpha2.APIBinding) error {
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

func mentions(condition conditionsv1alpha1.Type, parts ...string) func(*apisv1alpha2.APIBinding) error {
	return func(binding *apisv1alpha2.APIBinding) error {
		message := conditionsv1alpha1.GetMessage(binding, condition)
		for _, part := range parts {
			if !strings.Contains(message, part) {
				return fmt.Errorf("%s says %q, not %q", condition, message, part)
			}
		}
		return nil
	}
}

// publishAndBind is flow 12.2 of the contract, as far as controllers make it.
func publishAndBind(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	export := s.NewExport(t, provider, "widgets", widgets, "Widget")
	binding := s.Bind(t, consumer, provider, "widgets")
	offered := &apisv1alpha1.APIResourceSchema{}
	if err := s.Get(in(provider), client.ObjectKey{Name: "v1." + widgets.String()}, offered); err != nil {
		t.Fatal(err)
	}
	got := binding.Status.BoundResources[0]
	if len(binding.Status.BoundResources) != 1 || got.Schema.IdentityHash != export.Status.IdentityHash || got.Schema.UID != string(offered.UID) ||
		got.Schema.Name != offered.Name || strings.Join(got.StorageVersions, " ") != "v1" || binding.Status.APIExportClusterName != provider {
		t.Errorf("status is %+v", binding.Status)
	}
	if err := all(bound, says(apisv1alpha2.APIExportValid, ""), says(apisv1alpha2.InitialBindingCompleted, ""), says(apisv1alpha2.BindingUpToDate, ""),
		says(apisv1alpha2.PermissionClaimsValid, ""), says(apisv1alpha2.PermissionClaimsApplied, ""))(binding); err != nil {
		t.Errorf("%v; conditions %+v", err, binding.Status.Conditions)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	masters := s.Shard.Client(t, s.Masters(t))
	if err := masters.Get(in("system:bound-crds"), client.ObjectKey{Name: string(offered.UID)}, definition); err != nil {
		t.Fatal(err)
	}
	if definition.Annotations[apisv1alpha2.SchemaClusterAnnotationKey] != provider || definition.Annotations[apisv1alpha2.SchemaNameAnnotationKey] != offered.Name {
		t.Errorf("annotations of the definition are %v", definition.Annotations)
	}
}

func waitsForExport(t *testing.T, s *env) {
	// Who names a logical cluster of others must be allowed to bind there, which takes an export.
	own := s.workspaces(s.unique())[0]
	s.bind(own, "late", "", "late")
	s.binding(own, "late", all(binding, says(apisv1alpha2.APIExportValid, apisv1alpha2.APIExportNotFoundReason), mentions(apisv1alpha2.APIExportValid, own+":late"),
		says(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.WaitingForEstablishedReason), says(conditionsv1alpha1.Ready, apisv1alpha2.WaitingForEstablishedReason)))
	s.NewExport(t, own, "late", s.resource("widgets"), "Widget")
	s.binding(own, "late", all(bound, binds("widgets"), says(apisv1alpha2.APIExportValid, "")))
}

func waitsForIdentity(t *testing.T, s *env) {
	provider, consumer := s.pair()
	if err := s.Create(in(provider), &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "secretive"},
		Spec:       apisv1alpha2.APIExportSpec{Identity: &apisv1alpha2.Identity{SecretRef: &corev1.SecretReference{Namespace: "default", Name: "identity"}}},
	}); err != nil {
		t.Fatal(err)
	}
	s.bind(consumer, "secretive", provider, "secretive")
	s.binding(consumer, "secretive", all(binding, says(apisv1alpha2.APIExportValid, apisv1alpha2.MissingIdentityHashReason)))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "identity"}, Data: map[string][]byte{"key": []byte("given")}}
	if err := s.Create(in(provider), secret); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "secretive", all(bound, binds(), says(apisv1alpha2.APIExportValid, "")))
}

func waitsForSchema(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets, gadgets := s.resource("widgets"), s.resource("gadgets")
	s.NewExport(t, provider, "both", widgets, "Widget", offering(gadgets))
	s.bind(consumer, "both", provider, "both")
	s.binding(consumer, "both", all(binding, binds(), says(apisv1alpha2.APIExportValid, apisv1alpha2.InternalErrorReason), mentions(apisv1alpha2.APIExportValid, "v1."+gadgets.String())))
	if err := s.Create(in(provider), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "both", all(bound, binds("gadgets", "widgets"), says(apisv1alpha2.APIExportValid, "")))
}

// offering adds a resource to an export.
func offering(gr schema.GroupResource, prefix ...string) func(*apisv1alpha2.APIExport) {
	return func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources = append(export.Spec.Resources, apisv1alpha2.ResourceSchema{
			Name: gr.Resource, Group: gr.Group, Schema: append(prefix, "v1")[0] + "." + gr.String(),
			Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
		})
	}
}

func needsLogicalCluster(t *testing.T, s *env) {
	provider := s.workspaces(s.unique())[0]
	s.NewExport(t, provider, "widgets", s.resource("widgets"), "Widget")
	masters := s.Shard.Client(t, s.Masters(t))
	nowhere := &env{Shard: s.Shard, Client: masters, t: t}
	nowhere.bind("nowhere", "widgets", provider, "widgets")
	nowhere.binding("nowhere", "widgets", all(binding, binds(), says(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.LogicalClusterNotFoundReason)))
}

func firstComeFirstServed(t *testing.T, s *env) {
	clusters := s.workspaces(s.unique()+"-1", s.unique()+"-2", s.unique()+"-c")
	widgets, gadgets := s.resource("widgets"), s.resource("gadgets")
	s.NewExport(t, clusters[0], "one", widgets, "Widget")
	if err := s.Create(in(clusters[1]), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	s.NewExport(t, clusters[1], "two", widgets, "Widget", offering(gadgets))
	consumer := clusters[2]
	s.Bind(t, consumer, clusters[0], "one")
	s.bind(consumer, "two", clusters[1], "two")
	s.binding(consumer, "two", all(binding, binds("gadgets"), says(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		says(apisv1alpha2.BindingUpToDate, apisv1alpha2.NamingConflictsReason), mentions(apisv1alpha2.BindingUpToDate, `APIBinding "one"`, widgets.String())))
	s.locks(consumer, map[string]string{widgets.String(): "one", gadgets.String(): "two"})
	if err := s.Delete(in(consumer), newBinding("one", "", "")); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "two", all(bound, binds("gadgets", "widgets"), says(apisv1alpha2.BindingUpToDate, "")))
	s.locks(consumer, map[string]string{widgets.String(): "two", gadgets.String(): "two"})
}

// locks waits until the locks of a logical cluster among these resources are held by bindings of these names, or by
// definitions for "".
func (s *env) locks(cluster string, want map[string]string) {
	s.t.Helper()
	shardtesting.Eventually(s.t, "the locks of "+cluster, func(ctx context.Context) error {
		logicalCluster := &corev1alpha1.LogicalCluster{}
		if err := s.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: "cluster"}, logicalCluster); err != nil {
			return err
		}
		annotation, there := logicalCluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]
		if !there {
			return errors.New("there are none")
		}
		for resource, holder := range want {
			lock := fmt.Sprintf("%q:{%q:%q}", resource, "n", holder)
			if holder == "" {
				lock = fmt.Sprintf("%q:{%q:true}", resource, "c")
			}
			if !strings.Contains(annotation, lock) {
				return fmt.Errorf("locks are %s, without %s", annotation, lock)
			}
		}
		return nil
	})
}

// define creates a definition of a workspace's own, and waits until it is served.
func (s *env) define(cluster string, gr schema.GroupResource, kind string) *apiextensionsv1.CustomResourceDefinition {
	s.t.Helper()
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
	if err := s.Create(in(cluster), definition); err != nil {
		s.t.Fatal(err)
	}
	shardtesting.Eventually(s.t, "definition "+definition.Name, func(ctx context.Context) error {
		if err := s.Get(shardtesting.In(ctx, cluster), client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not established")
	})
	return definition
}

func definitionsHoldResources(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets := s.resource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	definition := s.define(consumer, widgets, "Widget")
	s.locks(consumer, map[string]string{widgets.String(): ""})
	s.bind(consumer, "widgets", provider, "widgets")
	s.binding(consumer, "widgets", all(binding, binds(), says(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		mentions(apisv1alpha2.InitialBindingCompleted, `CustomResourceDefinition "`+widgets.String()+`"`)))
	if err := s.Delete(in(consumer), definition); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "widgets", all(bound, binds("widgets")))
	s.locks(consumer, map[string]string{widgets.String(): "widgets"})
	// A definition that comes later stands aside.
	s.define(consumer, widgets, "Widget")
	s.locks(consumer, map[string]string{widgets.String(): "widgets"})
}

func namesConflict(t *testing.T, s *env) {
	clusters := s.workspaces(s.unique()+"-1", s.unique()+"-2", s.unique()+"-c")
	s.NewExport(t, clusters[0], "one", s.resource("widgets"), "Widget")
	s.NewExport(t, clusters[1], "two", s.resource("things"), "Widget")
	consumer := clusters[2]
	s.Bind(t, consumer, clusters[0], "one")
	s.bind(consumer, "two", clusters[1], "two")
	s.binding(consumer, "two", all(binding, binds(), says(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		mentions(apisv1alpha2.InitialBindingCompleted, `singular name "widget"`, `APIBinding "one"`, clusters[0]+":one")))
	if err := s.Delete(in(consumer), newBinding("one", "", "")); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "two", all(bound, binds("things")))
	// The same with a definition of the workspace.
	s.define(consumer, s.resource("gadgets"), "Gadget")
	s.NewExport(t, clusters[0], "three", s.resource("devices"), "Gadget")
	s.bind(consumer, "three", clusters[0], "three")
	s.binding(consumer, "three", all(binding, says(apisv1alpha2.InitialBindingCompleted, apisv1alpha2.NamingConflictsReason),
		mentions(apisv1alpha2.InitialBindingCompleted, `singular name "gadget"`, `CustomResourceDefinition "gadgets`)))
}

// change updates an object until there is no conflict.
func change[T client.Object](s *env, cluster, name string, object T, how func(T)) {
	s.t.Helper()
	shardtesting.Eventually(s.t, "changing "+name, func(ctx context.Context) error {
		if err := s.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		how(object)
		return s.Update(shardtesting.In(ctx, cluster), object)
	})
}

func followsExport(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets, gadgets := s.resource("widgets"), s.resource("gadgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	first := s.Bind(t, consumer, "root:"+s.unique()+"-p", "widgets")

	// A resource more, whose schema comes with it, and a claim.
	if err := s.Create(in(provider), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	change(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) {
		offering(gadgets)(export)
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"}}}
	})
	s.binding(consumer, "widgets", all(bound, binds("gadgets", "widgets"), says(apisv1alpha2.BindingUpToDate, ""), func(binding *apisv1alpha2.APIBinding) error {
		if claims := binding.Status.ExportPermissionClaims; len(claims) != 1 || claims[0].Resource != "configmaps" {
			return fmt.Errorf("claims of the export are %+v", claims)
		}
		return nil
	}))

	// Another schema, which stores another version.
	next := shardtesting.NewSchema("v2", widgets, "Widget")
	next.Spec.Versions[0].Name = "v2"
	if err := s.Create(in(provider), next); err != nil {
		t.Fatal(err)
	}
	change(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) { export.Spec.Resources[0].Schema = next.Name })
	s.binding(consumer, "widgets", all(bound, func(binding *apisv1alpha2.APIBinding) error {
		got := binding.Status.BoundResources[1]
		if got.Schema.UID != string(next.UID) || strings.Join(got.StorageVersions, " ") != "v1 v2" || got.Schema.IdentityHash != first.Status.BoundResources[0].Schema.IdentityHash {
			return fmt.Errorf("bound is %+v", got)
		}
		return nil
	}))

	// What is taken away stays bound.
	change(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources, export.Spec.PermissionClaims = export.Spec.Resources[:1], nil
	})
	s.binding(consumer, "widgets", all(bound, binds("gadgets", "widgets"), says(apisv1alpha2.BindingUpToDate, ""), func(binding *apisv1alpha2.APIBinding) error {
		if len(binding.Status.ExportPermissionClaims) > 0 {
			return errors.New("the claims of the export remain")
		}
		return nil
	}))
}

func outlivesExport(t *testing.T, s *env) {
	provider, consumer := s.pair()
	export := s.NewExport(t, provider, "widgets", s.resource("widgets"), "Widget")
	s.Bind(t, consumer, provider, "widgets")
	if err := s.Delete(in(provider), export); err != nil {
		t.Fatal(err)
	}
	s.binding(consumer, "widgets", all(bound, binds("widgets"), says(apisv1alpha2.APIExportValid, apisv1alpha2.APIExportNotFoundReason)))
	again := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: apisv1alpha2.APIExportSpec{Resources: export.Spec.Resources}}
	if err := s.Create(in(provider), again); err != nil {
		t.Fatal(err)
	}
	// Its secret has stayed, so it is the same export to everybody.
	s.binding(consumer, "widgets", all(bound, binds("widgets"), says(apisv1alpha2.APIExportValid, ""), func(binding *apisv1alpha2.APIBinding) error {
		if got := binding.Status.BoundResources[0].Schema.IdentityHash; got != export.Status.IdentityHash {
			return fmt.Errorf("identity is %s, was %s", got, export.Status.IdentityHash)
		}
		return nil
	}))
}

func extraAnnotations(t *testing.T, s *env) {
	provider, consumer := s.pair()
	const key = "extra.apis.kcp.io/team"
	s.NewExport(t, provider, "widgets", s.resource("widgets"), "Widget", func(export *apisv1alpha2.APIExport) {
		export.Annotations = map[string]string{key: "red", "other": "x"}
	})
	s.bind(consumer, "widgets", provider, "widgets")
	annotated := func(want string) func(*apisv1alpha2.APIBinding) error {
		return func(binding *apisv1alpha2.APIBinding) error {
			if got := binding.Annotations[key]; got != want || binding.Annotations["other"] != "" {
				return fmt.Errorf("annotations are %v", binding.Annotations)
			}
			return nil
		}
	}
	s.binding(consumer, "widgets", all(bound, annotated("red")))
	change(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) { export.Annotations[key] = "blue" })
	s.binding(consumer, "widgets", annotated("blue"))
	change(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) { delete(export.Annotations, key) })
	s.binding(consumer, "widgets", annotated(""))
}

func locksAreMadeAnew(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets, own := s.resource("widgets"), s.resource("devices")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	s.define(consumer, own, "Device")
	s.Bind(t, consumer, provider, "widgets")
	want := map[string]string{widgets.String(): "widgets", own.String(): ""}
	s.locks(consumer, want)
	for _, value := range []string{"null", `"{"`} {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, corev1alpha1.ResourceBindingsAnnotationKey, value)
		cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
		if err := s.Patch(in(consumer), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
		s.locks(consumer, want)
	}
}

func locksRunOut(t *testing.T, s *env) {
	provider, consumer := s.pair()
	widgets, gadgets := s.resource("widgets"), s.resource("gadgets")
	if err := s.Create(in(provider), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	s.NewExport(t, provider, "both", widgets, "Widget", offering(gadgets))
	locks := fmt.Sprintf(`{%q:{"c":true,"e":%q},%q:{"c":true,"e":%q}}`,
		widgets.String(), time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), gadgets.String(), time.Now().Add(3*time.Second).UTC().Format(time.RFC3339))
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, corev1alpha1.ResourceBindingsAnnotationKey, locks)
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	if err := s.Patch(in(consumer), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	s.bind(consumer, "both", provider, "both")
	s.binding(consumer, "both", all(binding, binds("widgets"), mentions(apisv1alpha2.InitialBindingCompleted, `CustomResourceDefinition "gadgets`)))
	s.binding(consumer, "both", all(bound, binds("gadgets", "widgets")))
	s.locks(consumer, map[string]string{widgets.String(): "both", gadgets.String(): "both"})
}

func addressesFollowBindings(t *testing.T, s *env) {
	provider, consumer := s.pair()
	s.NewExport(t, provider, "widgets", s.resource("widgets"), "Widget")
	addresses := func(want int) {
		t.Helper()
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		shardtesting.Eventually(t, "the addresses of the slice", func(ctx context.Context) error {
			if err := s.Get(shardtesting.In(ctx, provider), client.ObjectKey{Name: "widgets"}, slice); err != nil {
				return err
			}
			if got := slice.Status.APIExportEndpoints; len(got) != want || (want > 0 && !strings.HasSuffix(got[0].URL, "/services/apiexport/"+provider+"/widgets")) {
				return fmt.Errorf("addresses are %+v, conditions %+v", got, slice.Status.Conditions)
			}
			return nil
		})
	}
	addresses(0)
	binding := s.Bind(t, consumer, provider, "widgets")
	addresses(1)
	if err := s.Delete(in(consumer), binding); err != nil {
		t.Fatal(err)
	}
	addresses(0)
}
