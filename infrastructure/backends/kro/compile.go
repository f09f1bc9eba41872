package kro

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/kubernetes-sigs/kro/pkg/graph"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

// compiled is a compiled Template. It is immutable, and all instances share it.
type compiled struct {
	graph *graph.Graph
	// constants are outputs without expressions.
	constants map[string]any
	// version is spec.version of the Template.
	version string
	// kinds are the kinds of the objects of instances. reads means that instances also read objects of other owners.
	kinds map[schema.GroupVersionKind]bool
	reads bool
}

// mistakeError is an error in a Template. Its message names the field.
type mistakeError struct{ error }

func (e *mistakeError) Unwrap() error { return e.error }

// compiler compiles Templates. It calls the library that defines the language, and recovers from its panics.
type compiler struct {
	cluster *runtimecluster.Cluster
	builder *graph.Builder
}

func newCompiler(cluster *runtimecluster.Cluster, s *schemas) (*compiler, error) {
	builder, err := graph.NewBuilder(nil, nil, graph.WithSchemaResolver(s), graph.WithRESTMapper(cluster.Client.RESTMapper()))
	if err != nil {
		return nil, fmt.Errorf("building the compiler: %w", err)
	}
	return &compiler{cluster, builder}, nil
}

// compile compiles a Template. It returns a mistakeError if the Template is invalid, and any other error if this cannot be determined.
func (c *compiler) compile(t *infrastructurev1alpha1.Template) (_ *compiled, err error) {
	defer recoverError(&err)
	parsed, err := parseConfig(t)
	if err != nil {
		return nil, &mistakeError{err}
	}
	result := &compiled{version: t.Spec.Version, kinds: map[schema.GroupVersionKind]bool{}}
	for i := range parsed.Resources {
		r := &parsed.Resources[i]
		if err := c.check(r, root().Child("resources").Index(i)); err != nil {
			return nil, err
		}
		if r.ExternalRef != nil {
			result.reads = true
		} else {
			result.kinds[r.kind()] = true
		}
	}
	from, err := newSource(t, parsed)
	if err != nil {
		return nil, &mistakeError{err}
	}
	result.constants = from.constants
	if result.graph, _, err = c.builder.CompileSource(from); err == nil {
		err = limitGraph(result.graph)
	}
	if _, unavailable := errors.AsType[*unavailableError](err); unavailable {
		return nil, err
	}
	if err != nil {
		return nil, &mistakeError{fmt.Errorf("%s: %w", pathOf(err, parsed), err)}
	}
	return result, nil
}

// check refuses kinds that instances cannot have.
func (c *compiler) check(r *resource, at *field.Path) error {
	err := c.cluster.Check(r.kind())
	if _, ok := errors.AsType[*runtimecluster.KindError](err); ok {
		child := "template"
		if r.ExternalRef != nil {
			child = "externalRef"
		}
		return &mistakeError{fmt.Errorf("%s: %w", at.Child(child), err)}
	}
	return err
}

// isSchemaMissing reports whether the cluster has no schema of a kind, or does not serve the kind.
func isSchemaMissing(err error) bool {
	return errors.Is(err, resolver.ErrSchemaNotFound) || meta.IsNoMatchError(err)
}

// recoverError converts a panic to an error.
func recoverError(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("evaluating failed: %v", r)
	}
}

var (
	resourceOf = regexp.MustCompile(`(?:resource|node) "?([a-z][a-zA-Z0-9]*)"?`)
	fieldOf    = regexp.MustCompile(`(?:at|for|array schema for) path "?([^\s":,]+)`)
	statusOf   = regexp.MustCompile(`\b(` + outputsField + `|` + connectionField + `)((?:\.|\[)[^\s":,]+)`)
	conditions = regexp.MustCompile(`\b(readyWhen|includeWhen|forEach)\b`)
)

// pathOf returns the field that an error of the compiler is about, as precisely as the message allows.
func pathOf(err error, c *config) string {
	text := err.Error()
	if match := statusOf.FindStringSubmatch(text); match != nil && !resourceOf.MatchString(text) {
		name := map[string]string{outputsField: "statusMapping", connectionField: "connection"}[match[1]]
		return root().Child(name).String() + match[2]
	}
	match := resourceOf.FindStringSubmatch(text)
	if match == nil {
		return root().String()
	}
	for i := range c.Resources {
		if c.Resources[i].ID != match[1] {
			continue
		}
		at := root().Child("resources").Index(i)
		if condition := conditions.FindString(text); condition != "" {
			return at.Child(condition).String()
		}
		child := "template"
		if c.Resources[i].ExternalRef != nil {
			child = "externalRef"
		}
		if within := fieldOf.FindStringSubmatch(text); within != nil {
			return at.Child(child).String() + "." + strings.TrimPrefix(within[1], ".")
		}
		return at.Child(child).String()
	}
	return root().String()
}
