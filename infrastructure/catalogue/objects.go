package catalogue

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/template"
	"github.com/atoll-dev/atoll/internal/apiresourceschema"
)

// publication is the name of the ClusterCachedResource of Templates and of its endpoint slice.
const publication = "publish-templates"

// resource is the plural name of Templates.
const resource = template.Resource

// hiddenSpec are the fields of spec that tenants do not see: only backends and the provider use them, and they may reveal how instances are
// implemented.
var hiddenSpec = []string{"backendConfig", "backend", "dataPlane", "development"}

// hiddenFields are all fields that tenants do not see.
var hiddenFields = "spec." + strings.Join(hiddenSpec, ",spec.") + ",status"

//go:embed crd/*.yaml
var definitions embed.FS

// definition returns the CRD of a kind of the provider in a group.
func definition(resource, group string) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := definitions.ReadFile("crd/" + resource + ".yaml")
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = yaml.UnmarshalStrict(text, crd)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", resource, err)
	}
	crd.Name, crd.Spec.Group = resource+"."+group, group
	return crd, nil
}

// publishedSchema returns the schema of Templates for tenants, which omits the hidden fields.
func publishedSchema(group string) (*apisv1alpha1.APIResourceSchema, error) {
	crd, err := definition(resource, group)
	if err != nil {
		return nil, err
	}
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		delete(version.Schema.OpenAPIV3Schema.Properties, "status")
		spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
		for _, name := range hiddenSpec {
			delete(spec.Properties, name)
		}
		spec.Required = slices.DeleteFunc(spec.Required, func(name string) bool { return slices.Contains(hiddenSpec, name) })
		version.Schema.OpenAPIV3Schema.Properties["spec"] = spec
		version.Subresources = nil
		version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Display Name", Type: "string", JSONPath: ".spec.displayName"},
			{Name: "Category", Type: "string", JSONPath: ".spec.category"},
			{Name: "Kind", Type: "string", JSONPath: ".spec.instanceCRD.kind"},
			{Name: "Version", Type: "string", JSONPath: ".spec.version"},
		}
	}
	crd.Spec.Conversion = nil
	return apiresourceschema.ByContent(crd, template.CatalogueSchemaPrefix)
}

// shell returns an export without resources.
func shell(name string) *apisv1alpha2.APIExport {
	return &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// claims returns the permission claims of the platform: to write connections of instances to Secrets, and to record events of instances.
// The proposed selectors exclude all other Secrets and events.
func claims(group string) []apisv1alpha2.PermissionClaim {
	claim := func(resource, label string, verbs ...string) apisv1alpha2.PermissionClaim {
		return apisv1alpha2.PermissionClaim{
			GroupResource: apisv1alpha2.GroupResource{Resource: resource}, Verbs: verbs,
			DefaultSelector: &apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}},
		}
	}
	return []apisv1alpha2.PermissionClaim{
		claim("secrets", instance.LabelConnection(group), "get", "list", "watch", "create", "update", "delete"),
		claim("events", instance.LabelEvent(group), "get", "create", "patch"),
	}
}

// setClaims sets claims of an export, and reports whether that changed it. It preserves claims for other resources.
func setClaims(current *[]apisv1alpha2.PermissionClaim, wanted []apisv1alpha2.PermissionClaim) bool {
	changed := false
	for _, claim := range wanted {
		i := slices.IndexFunc(*current, claim.EqualGRI)
		switch {
		case i < 0:
			*current = append(*current, claim)
		case !equality.Semantic.DeepEqual((*current)[i], claim):
			(*current)[i] = claim
		default:
			continue
		}
		changed = true
	}
	return changed
}

// labelManagedBy, with the value managedBy, is the label of permissions that the provider grants and revokes.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "infrastructure-provider"
)

func isManaged(object metav1.Object) bool { return object.GetLabels()[labelManagedBy] == managedBy }

// binders returns the role and the binding that let groups of users bind the export.
func binders(export string, groups []string) (*rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	var subjects []rbacv1.Subject
	for _, group := range groups {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	meta := metav1.ObjectMeta{Name: export + ":bind", Labels: map[string]string{labelManagedBy: managedBy}}
	return &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{apisv1alpha2.GroupName}, Resources: []string{"apiexports"}, ResourceNames: []string{export}, Verbs: []string{"bind"},
		}}}, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects:   subjects,
		}
}

// cached returns the publication of the ready Templates of a group.
func cached(group string) *cachev1alpha1.ClusterCachedResource {
	return &cachev1alpha1.ClusterCachedResource{
		ObjectMeta: metav1.ObjectMeta{Name: publication, Annotations: map[string]string{cachev1alpha1.OmittedFieldsAnnotationKey: hiddenFields}},
		Spec: cachev1alpha1.ClusterCachedResourceSpec{
			GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: group, Version: infrastructurev1alpha1.Version, Resource: resource},
			LabelSelector:        &metav1.LabelSelector{MatchLabels: map[string]string{template.LabelReady(group): "true"}},
		},
	}
}

// publishedBy returns the endpoint slice through which an export serves its Templates.
func publishedBy(o offer) *cachev1alpha1.ClusterCachedResourceEndpointSlice {
	slice := &cachev1alpha1.ClusterCachedResourceEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: o.slice},
		Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
			ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Name: publication},
			APIExport:             cachev1alpha1.ExportBindingReference{Name: o.export},
		},
	}
	if !o.selector.Empty() {
		slice.Annotations = map[string]string{cachev1alpha1.LabelSelectorAnnotationKey: o.selector.String()}
	}
	return slice
}

// endpoints returns the endpoint slice with the URLs of the virtual workspace of an export.
func endpoints(export string) *apisv1alpha1.APIExportEndpointSlice {
	return &apisv1alpha1.APIExportEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: export},
		Spec:       apisv1alpha1.APIExportEndpointSliceSpec{APIExport: apisv1alpha1.ExportBindingReference{Name: export}},
	}
}

// entry returns the entry of Templates in an export, which serves them through a slice.
func entry(group, schema, slice, identity string) apisv1alpha2.ResourceSchema {
	return apisv1alpha2.ResourceSchema{
		Name: resource, Group: group, Schema: schema,
		Storage: apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{
			Reference:    corev1.TypedLocalObjectReference{APIGroup: ptr.To(cachev1alpha1.GroupName), Kind: "ClusterCachedResourceEndpointSlice", Name: slice},
			IdentityHash: identity,
		}},
	}
}
