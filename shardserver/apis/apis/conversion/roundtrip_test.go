package conversion

import (
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// reservedAnnotations are the annotations that conversions write.
var reservedAnnotations = []string{
	apisv1alpha2.ResourceSchemasAnnotationKey, apisv1alpha2.PermissionClaimsAnnotationKey, apisv1alpha2.V1alpha1PermissionClaimsAnnotationKey,
	apisv1alpha2.AcceptablePermissionClaimsAnnotationKey, apisv1alpha2.StatusExportPermissionClaimsAnnotationKey, apisv1alpha2.StatusAppliedPermissionClaimsAnnotationKey,
	apisv1alpha2.V1alpha1StatusExportPermissionClaimsAnnotationKey, apisv1alpha2.V1alpha1StatusAppliedPermissionClaimsAnnotationKey,
}

// FuzzRoundTrip converts random objects to the other version and back.
func FuzzRoundTrip(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, seed))
		filler := randfill.NewWithSeed(int64(seed)).NilChance(.3).NumElements(0, 4).Funcs(newFillers(random)...)
		checkRoundTrip(t, filler, ExportToV1alpha2, ExportToV1alpha1, func(export *apisv1alpha1.APIExport) *apisv1alpha1.APIExport { return export })
		checkRoundTrip(t, filler, ExportToV1alpha1, ExportToV1alpha2, func(export *apisv1alpha2.APIExport) *apisv1alpha2.APIExport {
			removeReservedAnnotations(&export.ObjectMeta)
			// v1alpha1 has resources in two fields, so the order of the list, which has no meaning, is lost.
			slices.SortFunc(export.Spec.Resources, func(a, b apisv1alpha2.ResourceSchema) int {
				return slices.Compare([]string{a.Group, a.Name}, []string{b.Group, b.Name})
			})
			return export
		})
		checkRoundTrip(t, filler, BindingToV1alpha2, BindingToV1alpha1, func(binding *apisv1alpha1.APIBinding) *apisv1alpha1.APIBinding { return binding })
		checkRoundTrip(t, filler, BindingToV1alpha1, BindingToV1alpha2, func(binding *apisv1alpha2.APIBinding) *apisv1alpha2.APIBinding {
			removeReservedAnnotations(&binding.ObjectMeta)
			return binding
		})
	})
}

// checkRoundTrip compares an object with the result of its round trip, both normalized.
func checkRoundTrip[A, B any](t *testing.T, filler *randfill.Filler, convert func(*A, *B) error, convertBack func(*B, *A) error, normalize func(*A) *A) {
	t.Helper()
	start, other, end := new(A), new(B), new(A)
	filler.Fill(start)
	if err := convert(start, other); err != nil {
		t.Fatal(err)
	}
	if err := convertBack(other, end); err != nil {
		t.Fatal(err)
	}
	if got, want := normalize(end), normalize(start); !equality.Semantic.DeepEqual(got, want) {
		expectEqual(t, got, want)
	}
}

// removeReservedAnnotations removes the annotations in v1alpha2 that preserve fields of v1alpha1.
func removeReservedAnnotations(meta *metav1.ObjectMeta) {
	for _, key := range reservedAnnotations {
		delete(meta.Annotations, key)
	}
}

// newFillers return functions that create valid objects: names of schemas contain resources, claims are unique.
func newFillers(random *rand.Rand) []any {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	name := func() string { return pick("alpha", "beta", "gamma", "delta") }
	group := func() string { return pick("", "example.com", "apps", "a.b.c.d") }
	schema := func(name, group string) string {
		if group == "" {
			group = coreGroup
		}
		return pick("v1", "today", "a-b") + "." + name + "." + group
	}
	return []any{
		func(*metav1.TypeMeta, randfill.Continue) {}, // set by the codec
		func(meta *metav1.ObjectMeta, c randfill.Continue) {
			meta.Name = c.String(0)
			if c.Bool() {
				meta.Annotations = map[string]string{"own": c.String(0)}
			}
		},
		func(resource *apisv1alpha2.ResourceSchema, c randfill.Continue) {
			resource.Name, resource.Group = name(), group()
			resource.Schema = pick("", "x.") + schema(resource.Name, resource.Group)
			c.Fill(&resource.Storage.Virtual)
			if resource.Storage.Virtual == nil {
				resource.Storage.CRD = &apisv1alpha2.ResourceSchemaStorageCRD{}
			}
		},
		func(spec *apisv1alpha2.APIExportSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.Resources = removeDuplicates(spec.Resources, func(r apisv1alpha2.ResourceSchema) claimKey { return claimKey{r.Group, r.Name, ""} })
		},
		func(spec *apisv1alpha1.APIExportSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			for i := range spec.LatestResourceSchemas {
				spec.LatestResourceSchemas[i] = schema(name(), group())
			}
			slices.Sort(spec.LatestResourceSchemas)
			spec.LatestResourceSchemas = slices.Compact(spec.LatestResourceSchemas)
		},
		func(claims *[]apisv1alpha1.PermissionClaim, c randfill.Continue) {
			c.FillNoCustom(claims)
			*claims = removeDuplicates(*claims, keyV1alpha1)
		},
		func(claims *[]apisv1alpha1.AcceptablePermissionClaim, c randfill.Continue) {
			c.FillNoCustom(claims)
			*claims = removeDuplicates(*claims, func(claim apisv1alpha1.AcceptablePermissionClaim) claimKey {
				return keyV1alpha1(claim.PermissionClaim)
			})
		},
		func(claims *[]apisv1alpha2.PermissionClaim, c randfill.Continue) {
			c.FillNoCustom(claims)
			*claims = removeDuplicates(*claims, keyV1alpha2)
		},
		func(claims *[]apisv1alpha2.ScopedPermissionClaim, c randfill.Continue) {
			c.FillNoCustom(claims)
			*claims = removeDuplicates(*claims, func(claim apisv1alpha2.ScopedPermissionClaim) claimKey { return keyV1alpha2(claim.PermissionClaim) })
		},
		func(claims *[]apisv1alpha2.AcceptablePermissionClaim, c randfill.Continue) {
			c.FillNoCustom(claims)
			*claims = removeDuplicates(*claims, keyAcceptable)
		},
		func(gr *apisv1alpha1.GroupResource, _ randfill.Continue) { gr.Group, gr.Resource = group(), name() },
		func(gr *apisv1alpha2.GroupResource, _ randfill.Continue) { gr.Group, gr.Resource = group(), name() },
		func(claim *apisv1alpha1.PermissionClaim, c randfill.Continue) {
			c.FillNoCustom(claim)
			claim.All = len(claim.ResourceSelector) == 0
		},
		func(claim *apisv1alpha2.PermissionClaim, c randfill.Continue) {
			c.FillNoCustom(claim)
			if len(claim.Verbs) == 0 || c.Bool() {
				claim.Verbs = []string{apisv1alpha2.VerbAll}
			}
		},
		func(selector *apisv1alpha2.PermissionClaimSelector, c randfill.Continue) {
			c.Fill(&selector.LabelSelector)
			selector.MatchAll = c.Bool()
		},
	}
}

// removeDuplicates returns the items without those whose key occurs before.
func removeDuplicates[T any](items []T, id func(T) claimKey) []T {
	seen := map[claimKey]bool{}
	return filterItems(items, func(item T) bool {
		first := !seen[id(item)]
		seen[id(item)] = true
		return first
	})
}
