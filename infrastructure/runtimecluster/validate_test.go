package runtimecluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestPartsOfTemplatesThatEveryServerRefuses(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, test := range map[string]struct {
		object string
		want   []string // fields
	}{
		"names and labels of expressions": {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.metadata.name}", labels: {a: "${self.spec.a}", b: "x-${self.spec.a}-y"}}, data: {a: "${self.spec.a}"}}`},
		"labels that expressions choose":  {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: "${self.spec.labels}", annotations: "${self.spec.annotations}"}, data: "${self.spec.data}"}`},
		"nothing":                         {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: null, annotations: {}}, data: null}`},
		"a text that is as long as it may be, without its expressions": {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: "` + long + `${self.spec.a}"}}}`},
		"one that is longer":                                    {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: "` + long + `b${self.spec.a}"}}}`, []string{"metadata.labels[a]"}},
		"a label that begins with a dash":                       {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: "-${self.spec.a}"}}}`, []string{"metadata.labels[a]"}},
		"a label that is a number":                              {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: 1}}}`, []string{"metadata.labels[a]"}},
		"labels that are a list":                                {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: [a]}}`, []string{"metadata.labels"}},
		"metadata that is a text":                               {`{apiVersion: v1, kind: ConfigMap, metadata: a}`, []string{"metadata"}},
		"keys that are none":                                    {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {"a b": a}, annotations: {"/": a}}}`, []string{"metadata.labels[a b]", "metadata.annotations[/]"}},
		"annotations that are too large":                        {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {a: "` + strings.Repeat("a", 256<<10) + `"}}}`, []string{"metadata.annotations"}},
		"a name with a slash":                                   {`{apiVersion: v1, kind: ConfigMap, metadata: {name: "${self.spec.a}/b"}}`, []string{"metadata.name"}},
		"a name in upper case":                                  {`{apiVersion: example.org/v1, kind: Any, metadata: {name: A}}`, []string{"metadata.name"}},
		"a name that is too long":                               {`{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + strings.Repeat("a", 254) + `}}`, []string{"metadata.name"}},
		"a name with a colon":                                   {`{apiVersion: v1, kind: ConfigMap, metadata: {name: "a:b"}}`, []string{"metadata.name"}},
		"the same of a role":                                    {object: `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: "a:b"}}`},
		"a role with a slash":                                   {`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: "a/b"}}`, []string{"metadata.name"}},
		"a Service with a dot":                                  {`{apiVersion: v1, kind: Service, metadata: {name: a.b}}`, []string{"metadata.name"}},
		"a CronJob with a long name":                            {`{apiVersion: batch/v1, kind: CronJob, metadata: {name: ` + long + `}}`, []string{"metadata.name"}},
		"a key that no Secret has":                              {`{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {"a/b": c}}`, []string{"stringData[a/b]"}},
		"a Secret that is not encoded":                          {`{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: "b!"}}`, []string{"data[a]"}},
		"a Secret that an expression encodes":                   {object: `{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: "${base64.encode(b'a')}", b: YQ==}}`},
		"a ConfigMap with a number":                             {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: 1}}`, []string{"data[a]"}},
		"generated values of a ConfigMap":                       {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {example.org/generate: a}}}`, []string{"metadata.annotations[example.org/generate]"}},
		"generated values without a key":                        {`{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: {example.org/generate: "a,"}}}`, []string{"metadata.annotations[example.org/generate]"}},
		"pods of a Deployment":                                  {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {a: "b c"}}, template: {metadata: {labels: {a: "b c"}}}}}`, []string{"spec.selector.matchLabels[a]", "spec.template.metadata.labels[a]"}},
		"volumes of a StatefulSet":                              {`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {volumeClaimTemplates: [{metadata: {name: a, labels: {"a b": c}}}]}}`, []string{"spec.volumeClaimTemplates[0].metadata.labels[a b]"}},
		"what looks like labels in another kind":                {object: `{apiVersion: example.org/v1, kind: Any, metadata: {name: a}, spec: {metadata: {labels: {"a b": "c d"}}, matchLabels: {a: "b c"}}}`},
		"an expression in a key, which is a mistake of its own": {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {"${self.spec.a}": b}}}`},
		"an expression without end, which is one, too":          {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: "${self"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			errs := ValidateTemplate(parse(t, test.object), "example.org", field.NewPath("template"))
			var got []string
			for _, err := range errs {
				got = append(got, strings.TrimPrefix(err.Field, "template."))
			}
			if !slices.Equal(slices.Compact(got), test.want) || len(fmt.Sprint(errs)) > 4096 {
				t.Errorf("got %v", errs)
			}
		})
	}
}

func TestObjectsThatCannotExist(t *testing.T) {
	c := &Cluster{Group: "example.org"}
	for name, test := range map[string]struct {
		object string
		fails  bool
	}{
		"an object":                 {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: b}}}`},
		"no name":                   {`{apiVersion: v1, kind: ConfigMap, metadata: {name: ""}}`, true},
		"no metadata":               {`{apiVersion: v1, kind: ConfigMap}`, true},
		"a name that is a number":   {`{apiVersion: v1, kind: ConfigMap, metadata: {name: 1}}`, true},
		"a name of a directory":     {`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: ".."}}`, true},
		"a name of a tenant's text": {`{apiVersion: v1, kind: ConfigMap, metadata: {name: "${a}"}}`, true},
		"a key of a tenant's text":  {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {"${a}": b}}}`, true},
		"a label that is a number":  {`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: 1}}}`, true},
		"a value of a megabyte":     {`{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + strings.Repeat("a", 1<<20) + `}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.validate(&unstructured.Unstructured{Object: parse(t, test.object)})
			if test.fails == (err == nil) || err != nil && len(err.Error()) > 1024 {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				return
			}
			if _, ok := errors.AsType[*InvalidError](err); !ok {
				t.Errorf("it is a %T", err)
			}
			if _, refused := Refusal(err); !refused {
				t.Error("it counts as an error of the cluster")
			}
		})
	}
}

func TestNamesThatNothingHas(t *testing.T) {
	c := &Cluster{} // without a client, so that any request panics
	for _, name := range []string{"", "a/b", "..", "A", "${a}", strings.Repeat("a", 1<<20)} {
		_, err := c.Get(t.Context(), logicalcluster.MustParseName("tenant"), corev1.SchemeGroupVersion.WithKind("Secret"), name)
		if _, ok := errors.AsType[*InvalidError](err); !ok || len(err.Error()) > 1024 {
			t.Errorf("%.20q: got %v", name, err)
		}
	}
}
