package syncagent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
)

func TestA1PlainResourcesClaimOnlyEvents(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first, second := e.Publish(t, "widgets", Of(e.Define(t, "Widget"))), e.Publish(t, "gadgets", Of(e.Define(t, "Gadget")))
	e.Agent(t)
	e.published(t, first, "widgets."+e.Group)
	e.published(t, second, "gadgets."+e.Group)
	e.expectClaims(t, "events")
	provider := newClient(t, e.Provider)
	expectEvent(t, provider, e.Name, corev1.EventTypeNormal, "AddingResourceSchemas", first.Status.ResourceSchemaName)
	expectEvent(t, provider, e.Name, corev1.EventTypeNormal, "AddingPermissionClaims", "events")
	if got := e.apiExport(t).Annotations[publication.LabelAgentName]; got != e.Name {
		t.Errorf("the annotation of the export names agent %q, want %q", got, e.Name)
	}
}

func TestA2RelatedResourcesAreClaimed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Define(t, "Widget")
	p := e.Publish(t, "widgets", e.parse(t, `
resource: {apiGroup: $GROUP, kind: Widget}
related:
- {identifier: secret, origin: service, kind: Secret, object: {reference: {path: spec.secret}}}
- {identifier: config, origin: kcp, kind: ConfigMap, object: {reference: {path: spec.config}}}
`))
	e.Agent(t)
	e.published(t, p, "widgets."+e.Group)
	e.expectClaims(t, "configmaps", "events", "namespaces", "secrets")
}

func TestA3ClaimsOfOthersSurvive(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	claim := func(resource string) apisv1alpha1.PermissionClaim {
		return apisv1alpha1.PermissionClaim{GroupResource: apisv1alpha1.GroupResource{Resource: resource}, All: true}
	}
	provider := newClient(t, e.Provider)
	change(t, provider, e.apiExport(t), func(export *apisv1alpha1.APIExport) {
		selecting := claim("events")
		selecting.All, selecting.ResourceSelector = false, []apisv1alpha1.ResourceSelector{{Name: "one"}}
		export.Spec.PermissionClaims = []apisv1alpha1.PermissionClaim{claim("serviceaccounts"), selecting}
	})
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	e.Agent(t)
	e.published(t, p, "widgets."+e.Group)
	e.expectClaims(t, "events(selected)", "serviceaccounts")
	change(t, provider, e.apiExport(t), func(export *apisv1alpha1.APIExport) {
		export.Spec.PermissionClaims = append(export.Spec.PermissionClaims, claim("resourcequotas"))
	})
	change(t, e.Service, p, func(p *syncagentv1alpha1.PublishedResource) { p.Spec.EnableWorkspacePaths = true })
	e.expectClaims(t, "events(selected)", "resourcequotas", "serviceaccounts", "logicalclusters.core.kcp.io")
}

func TestA4ForeignSchemasSurvive(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	provider := newClient(t, e.Provider)
	foreign := shardtesting.NewSchema("theirs", schema.GroupResource{Group: e.Group, Resource: "others"}, "Other")
	outdated := shardtesting.NewSchema("previous", schema.GroupResource{Group: e.Group, Resource: "widgets"}, "Widget")
	create(t, provider, foreign)
	create(t, provider, outdated)
	change(t, provider, e.apiExport(t), func(export *apisv1alpha1.APIExport) {
		export.Spec.LatestResourceSchemas = []string{outdated.Name, foreign.Name}
	})
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	e.Agent(t)
	e.published(t, p, "widgets."+e.Group)
	if diff := cmp.Diff([]string{foreign.Name, p.Status.ResourceSchemaName}, e.apiExport(t).Spec.LatestResourceSchemas); diff != "" {
		t.Errorf("schemas of the export (-want +got):\n%s", diff)
	}
	expectEvent(t, provider, e.Name, corev1.EventTypeWarning, "RemovingResourceSchemas", outdated.Name)
}

// A6 and A8 continue with the result of A5.
func TestA5SchemasOfDeletedResourcesStay(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	deleted, kept := e.Publish(t, "widgets", Of(e.Define(t, "Widget"))), e.Publish(t, "gadgets", Of(e.Define(t, "Gadget")))
	e.Agent(t)
	widgets := e.published(t, deleted, "widgets."+e.Group)
	gadgets := e.published(t, kept, "gadgets."+e.Group)
	if err := e.Service.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	change(t, e.Service, kept, func(p *syncagentv1alpha1.PublishedResource) {
		p.Spec.Projection = &syncagentv1alpha1.ResourceProjection{ShortNames: &[]string{"gd"}}
	})
	projected := e.published(t, kept, "gadgets."+e.Group)
	if projected.Name == gadgets.Name {
		t.Fatal("the projection does not change the schema")
	}
	if diff := cmp.Diff([]string{projected.Name, widgets.Name}, e.apiExport(t).Spec.LatestResourceSchemas); diff != "" {
		t.Errorf("schemas of the export (-want +got):\n%s", diff)
	}
	for _, name := range []string{widgets.Name, gadgets.Name} {
		if err := newClient(t, e.Provider).Get(t.Context(), client.ObjectKey{Name: name}, &apisv1alpha1.APIResourceSchema{}); err != nil {
			t.Errorf("previous schema: %v", err)
		}
	}
}

func TestA6ProjectionsReplaceTheSchema(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	e.Agent(t)
	first := e.published(t, p, "widgets."+e.Group)
	shortNames := func(names ...string) func(*syncagentv1alpha1.PublishedResource) {
		return func(p *syncagentv1alpha1.PublishedResource) {
			p.Spec.Projection = &syncagentv1alpha1.ResourceProjection{ShortNames: &names}
		}
	}
	change(t, e.Service, p, shortNames("wg"))
	second := e.published(t, p, "widgets."+e.Group)
	if diff := cmp.Diff([]string{second.Name}, e.apiExport(t).Spec.LatestResourceSchemas); diff != "" || second.Name == first.Name {
		t.Errorf("schemas of the export (-want +got):\n%s", diff)
	}
	change(t, e.Service, p, func(p *syncagentv1alpha1.PublishedResource) { p.Spec.Projection = nil })
	if again := e.published(t, p, "widgets."+e.Group); again.UID != first.UID {
		t.Errorf("the previous content has schema %s, not %s again", again.Name, first.Name)
	}
}

func TestA7SchemasOfDefinitions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	e.Agent(t)
	found := e.published(t, p, "widgets."+e.Group)
	if prefix, _, _ := strings.Cut(found.Name, "."); len(prefix) != 9 || prefix[0] != 'v' {
		t.Errorf("the name is %s", found.Name)
	}
	wantAnnotations := map[string]string{publication.LabelAgentName: e.Name, publication.AnnotationSourceGeneration: "1"}
	annotations := maps.Clone(found.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !strings.HasPrefix(key, publication.Prefix) })
	if diff := cmp.Diff(wantAnnotations, annotations); diff != "" || found.Labels[publication.LabelAgentName] != e.Name {
		t.Errorf("labels %v, annotations (-want +got):\n%s", found.Labels, diff)
	}
	// The agent repairs labels, and creates a schema again that another user has deleted.
	provider := newClient(t, e.Provider)
	change(t, provider, found, func(s *apisv1alpha1.APIResourceSchema) {
		s.Labels = map[string]string{publication.LabelAgentName: "other", "own": "label"}
	})
	change(t, e.Service, p, func(p *syncagentv1alpha1.PublishedResource) { p.Labels["touched"] = "true" })
	shardtesting.Eventually(t, "labels are repaired", func(ctx context.Context) error {
		if err := provider.Get(ctx, client.ObjectKeyFromObject(found), found); err != nil {
			return err
		}
		if found.Labels[publication.LabelAgentName] != e.Name || found.Labels["own"] != "label" {
			return fmt.Errorf("labels are %v", found.Labels)
		}
		return nil
	})
	previous := found.UID
	if err := provider.Delete(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the schema is created again", func(ctx context.Context) error {
		err := provider.Get(ctx, client.ObjectKeyFromObject(found), found)
		if err == nil && found.UID == previous {
			return fmt.Errorf("it is not deleted")
		}
		return err
	})
}

func TestA8EditedDefinitionsHaveAnotherSchema(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.Publish(t, "widgets", Of(e.Define(t, "Widget")))
	e.Agent(t)
	first := e.published(t, p, "widgets."+e.Group)
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + e.Group}}
	change(t, e.Service, definition, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "edited"
	})
	shardtesting.Eventually(t, "the status names another schema", func(ctx context.Context) error {
		if err := e.Service.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.ResourceSchemaName == first.Name {
			return fmt.Errorf("it names %s", first.Name)
		}
		return nil
	})
	second := e.published(t, p, "widgets."+e.Group)
	shardtesting.Eventually(t, "the export has only the second schema", func(context.Context) error {
		if got := e.apiExport(t).Spec.LatestResourceSchemas; !slices.Equal(got, []string{second.Name}) {
			return fmt.Errorf("it has %v", got)
		}
		return nil
	})
	unchanged := &apisv1alpha1.APIResourceSchema{}
	if err := newClient(t, e.Provider).Get(t.Context(), client.ObjectKeyFromObject(first), unchanged); err != nil {
		t.Fatal(err)
	}
	if unchanged.ResourceVersion != first.ResourceVersion || second.Annotations[publication.AnnotationSourceGeneration] != "2" {
		t.Errorf("the first schema has version %s, not %s; the second is of generation %s", unchanged.ResourceVersion, first.ResourceVersion, second.Annotations[publication.AnnotationSourceGeneration])
	}
}

func TestA9OneOfSeveralVersions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Define(t, "Widget", versions("v1alpha1", "v1beta1", "v1"))
	e.Agent(t)
	e.expectOutline(t, "widgets", `resource: {apiGroup: $GROUP, kind: Widget, versions: [v1beta1]}`, "widgets.$GROUP",
		"$GROUP Widget WidgetList widget [] [] Namespaced: v1beta1*/status")
}

func TestA10SeveralVersionsInAnyOrder(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Define(t, "Widget", versions("v1alpha1", "v1beta1", "v1"))
	e.Agent(t)
	e.expectOutline(t, "widgets", `resource: {apiGroup: $GROUP, kind: Widget, versions: [v1, v1alpha1]}`, "widgets.$GROUP",
		"$GROUP Widget WidgetList widget [] [] Namespaced: v1*/status v1alpha1/status")
	e.expectOutline(t, "others", `{resource: {apiGroup: $GROUP, kind: Widget, versions: [v1alpha1, v1]}, projection: {plural: others}}`, "others.$GROUP",
		"$GROUP Widget WidgetList widget [] [] Namespaced: v1*/status v1alpha1/status")
}

func TestA11EverythingIsProjected(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Define(t, "Widget", func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Names.ShortNames = []string{"wd" + e.Name} })
	e.Agent(t)
	e.expectOutline(t, "widgets", `
resource: {apiGroup: $GROUP, kind: Widget}
projection: {group: other.$GROUP, version: v3, scope: Cluster, kind: Ding, plural: dinge, shortNames: [dg], categories: [all]}
`, "dinge.other.$GROUP", "other.$GROUP Ding DingList ding [dg] [all] Cluster: v3*/status")
}

func TestA12ResourcesWithoutADefinition(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Agent(t)
	e.expectOutline(t, "roles", `{resource: {apiGroup: rbac.authorization.k8s.io, kind: Role}, projection: {group: $GROUP}}`, "roles.$GROUP",
		"$GROUP Role RoleList role [] [] Namespaced: v1*")
	e.expectOutline(t, "configmaps", `{resource: {apiGroup: "", kind: ConfigMap}, projection: {group: $GROUP, kind: Settings, plural: settings}}`, "settings.$GROUP",
		"$GROUP Settings SettingsList settings [cm] [] Namespaced: v1*")
}

// The copies are objects of Kubernetes' own types, with all fields that these need and clients write.
func TestA12ObjectsOfTypesWithoutADefinitionAreSynced(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Agent(t)
	roles := e.Publish(t, "roles", e.parse(t, `{resource: {apiGroup: rbac.authorization.k8s.io, kind: Role}, projection: {group: $GROUP}}`))
	deployments := e.Publish(t, "deployments", e.parse(t, `{resource: {apiGroup: apps, kind: Deployment}, projection: {group: $GROUP}}`))
	e.published(t, roles, "roles."+e.Group)
	e.published(t, deployments, "deployments."+e.Group)
	c := e.Consumer(t, installation.Alpha)
	for source, text := range map[schema.GroupVersionKind]string{
		rbacv1.SchemeGroupVersion.WithKind("Role"): `
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}, {apiGroups: [apps], resources: [deployments], resourceNames: [one], verbs: ["*"]}]`,
		appsv1.SchemeGroupVersion.WithKind("Deployment"): `
spec:
  replicas: 0
  selector: {matchLabels: {app: one}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}
  template:
    metadata: {creationTimestamp: null, labels: {app: one}}
    spec:
      containers:
      - name: main
        image: registry.example.com/one:v1
        ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]
        resources: {limits: {cpu: 1, memory: 64Mi}}
        readinessProbe: {httpGet: {path: /, port: http}}
      volumes: [{name: data, emptyDir: {}}, {name: secret, secret: {secretName: one}}]`,
	} {
		object := newObject(schema.GroupVersionKind{Group: e.Group, Version: source.Version, Kind: source.Kind}, metav1.NamespaceDefault, "one", nil)
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		want := object.DeepCopy()
		c.New(t, object)
		copied := e.Copy(t, source, c, object)
		for _, field := range []string{"rules", "spec"} {
			if missing := missingIn(want.Object[field], copied.Object[field]); missing != "" {
				t.Errorf("the copy of the %s lacks %s", source.Kind, field+missing)
			}
		}
	}
}

// missingIn returns the path of a value that the second does not have, or "". Additional values of the second are defaults.
func missingIn(want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for key, value := range want {
			if missing := missingIn(value, got[key]); missing != "" {
				return "." + key + missing
			}
		}
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			return fmt.Sprintf(": %v, but %v", want, got)
		}
		for i := range want {
			if missing := missingIn(want[i], got[i]); missing != "" {
				return fmt.Sprintf("[%d]%s", i, missing)
			}
		}
	default:
		if want != nil && fmt.Sprint(want) != fmt.Sprint(got) {
			return fmt.Sprintf(": %v, but %v", want, got)
		}
	}
	return ""
}

func TestA13VersionsNamesAndSubresources(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Define(t, "Widget")
	e.Define(t, "Gadget", versions("v1alpha1", "v1"))
	e.Agent(t)
	e.expectOutline(t, "one", `resource: {apiGroup: $GROUP, kind: Widget}`, "widgets.$GROUP", "$GROUP Widget WidgetList widget [] [] Namespaced: v1*/status")
	e.expectOutline(t, "several", `resource: {apiGroup: $GROUP, kind: Gadget}`, "gadgets.$GROUP", "$GROUP Gadget GadgetList gadget [] [] Namespaced: v1*/status v1alpha1/status")
	e.expectOutline(t, "deployments", `{resource: {apiGroup: apps, kind: Deployment}, projection: {group: $GROUP}}`, "deployments.$GROUP",
		"$GROUP Deployment DeploymentList deployment [deploy] [all] Namespaced: v1*/status/scale")
	e.expectOutline(t, "autoscalers", `{resource: {apiGroup: autoscaling, kind: HorizontalPodAutoscaler}, projection: {group: $GROUP}}`, "horizontalpodautoscalers.$GROUP",
		"$GROUP HorizontalPodAutoscaler HorizontalPodAutoscalerList horizontalpodautoscaler [hpa] [all] Namespaced: v2*/status v1/status")
	e.expectOutline(t, "definitions", `{resource: {apiGroup: apiextensions.k8s.io, kind: CustomResourceDefinition}, projection: {group: $GROUP}}`, "customresourcedefinitions.$GROUP",
		"$GROUP CustomResourceDefinition CustomResourceDefinitionList customresourcedefinition [crd crds] [api-extensions] Cluster: v1*/status")
}
