package publication_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/syncagent/publication"
)

func TestParseAllowed(t *testing.T) {
	const namespaces, names = publication.AnnotationAllowedNamespaces, publication.AnnotationAllowedClusterScopedNames
	for description, test := range map[string]struct {
		annotation, text string
		refused          []string // the refused values, in order
	}{
		"accepts a name":                               {namespaces, "shared", nil},
		"accepts names with spaces between":            {namespaces, "shared, data-*,$remoteClusterName , $remoteClusterName-*", nil},
		"accepts a dot in a cluster-scoped name":       {names, "a.example.org,reader:$remoteClusterName-*", nil},
		"refuses a dot in a namespace":                 {namespaces, "shared,a.b", []string{"a.b"}},
		"refuses an empty list":                        {namespaces, "", []string{""}},
		"refuses an empty name":                        {namespaces, "a,,b", []string{"a,,b"}},
		"refuses a comma at the end":                   {names, "a,", []string{"a,"}},
		"refuses everything":                           {namespaces, "*", []string{"*"}},
		"refuses all cluster-scoped names":             {names, "*", []string{"*"}},
		"refuses an asterisk in the middle":            {namespaces, "a*b", []string{"a*b"}},
		"refuses it in cluster-scoped names":           {names, "a*b", []string{"a*b"}},
		"refuses other placeholders":                   {namespaces, "$remoteNamespace", []string{"$remoteNamespace"}},
		"refuses them in cluster-scoped names":         {names, "$remoteName", []string{"$remoteName"}},
		"refuses templates":                            {namespaces, "{{ .ClusterName }}", []string{"{{ .ClusterName }}"}},
		"refuses a slash in cluster-scoped names":      {names, "a/b", []string{"a/b"}},
		"refuses a name twice":                         {namespaces, "a,b,a", []string{"a"}},
		"refuses logical clusters that begin like one": {namespaces, "a-$remoteClusterName*", []string{"a-$remoteClusterName*"}},
		"names every mistake":                          {namespaces, "A,b,C", []string{"A", "C"}},
	} {
		_, errs := publication.ParseAllowed(&metav1.ObjectMeta{Annotations: map[string]string{test.annotation: test.text}})
		var refused []string
		for _, err := range errs {
			if want := "metadata.annotations[" + test.annotation + "]"; err.Field != want {
				t.Errorf("%s: the path is %s, want %s", description, err.Field, want)
			}
			refused = append(refused, err.BadValue.(string))
		}
		if !slices.Equal(refused, test.refused) {
			t.Errorf("%s: got %v", description, errs)
		}
	}
	if allowed, errs := publication.ParseAllowed(&metav1.ObjectMeta{}); len(errs) > 0 || allowed.Namespaces.Match("a", "") || allowed.Namespaces.Match("a", "a") {
		t.Errorf("without annotations: %v, %v", allowed, errs)
	}
}

func TestAllowedNames(t *testing.T) {
	for description, test := range map[string]struct {
		names, name string
		want        bool
	}{
		"a name":                                 {"shared", "shared", true},
		"a longer one":                           {"shared", "shared-2", false},
		"a prefix":                               {"data-*", "data-2", true},
		"a prefix alone":                         {"data-*", "data-", true},
		"another prefix":                         {"data-*", "database", false},
		"the logical cluster":                    {"$remoteClusterName", "2cluster", true},
		"another logical cluster":                {"$remoteClusterName", "3cluster", false},
		"a prefix with the logical cluster":      {"x-$remoteClusterName-*", "x-2cluster-a", true},
		"a prefix with another one":              {"x-$remoteClusterName-*", "x-3cluster-a", false},
		"a logical cluster that begins the same": {"$remoteClusterName-*", "2cluster2-a", false},
		"the second name":                        {"a, b", "b", true},
	} {
		allowed, errs := publication.ParseAllowed(&metav1.ObjectMeta{Annotations: map[string]string{publication.AnnotationAllowedNamespaces: test.names}})
		if got := allowed.Namespaces.Match("2cluster", test.name); len(errs) > 0 || got != test.want {
			t.Errorf("%s: got %v, %v", description, got, errs)
		}
	}
}
