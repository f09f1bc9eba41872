package expression

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/utils/lru"
)

const (
	// cacheSize bounds the compiled expressions of each kind. They come from the few PublishedResources.
	cacheSize = 512
	// maxResult bounds results of CEL, roughly in bytes: they may contain a large part of the object many times.
	maxResult = 4 * maxText
	// maxDepth bounds the depth of results.
	maxDepth = 1000
)

// celEnvironment has the libraries of Kubernetes' policies. Unlike these, it allows lists and maps with values of different types.
var celEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("value", cel.DynType), cel.Variable("self", cel.DynType), cel.Variable("other", cel.DynType),
		cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(),
		ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.TwoVarComprehensions(), ext.Encoders(),
		ext.Lists(ext.ListsVersion(3), ext.ListsMaxRangeSize(maxIterations)), library.Lists(library.ListsVersion(1)),
		library.URLs(), library.Regex(), library.Quantity(), library.IP(), library.CIDR(), library.Format(),
		library.SemverLib(library.SemverVersion(1)),
	)
})

var celPrograms = lru.New(cacheSize)

// EvaluateCEL evaluates an expression with a value, the object that contains it, and the counterpart of the object. The result consists
// of JSON types, and shares nothing with the objects. Costs are limited as in the rules of a CustomResourceDefinition.
func EvaluateCEL(expression string, value any, self, other map[string]any) (any, error) {
	compiled, err := compileCEL(expression)
	if err != nil {
		return nil, err
	}
	if self == nil {
		self = map[string]any{}
	}
	if other == nil {
		other = map[string]any{}
	}
	result, _, err := compiled.program.Eval(map[string]any{"value": value, "self": self, "other": other})
	if err != nil {
		failed := fmt.Errorf("CEL expression %q: %w", expression, err)
		if isMissing(err) && compiled.uses("other") {
			return nil, &MissingError{failed}
		}
		return nil, failed
	}
	converted, err := (&celConverter{}).convert(result, 0)
	if err != nil {
		return nil, fmt.Errorf("result of the CEL expression %q: %w", expression, err)
	}
	return converted, nil
}

// CompileCEL returns the errors in an expression.
func CompileCEL(expression string) error {
	_, err := compileCEL(expression)
	return err
}

// compiledCEL is a compiled expression.
type compiledCEL struct {
	program cel.Program
	tree    *ast.AST
}

func compileCEL(expression string) (*compiledCEL, error) {
	if compiled, found := celPrograms.Get(expression); found {
		return compiled.(*compiledCEL), nil
	}
	env, err := celEnvironment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("CEL expression %q: %w", expression, err)
	}
	program, err := limited(env, checked)
	if err != nil {
		return nil, fmt.Errorf("CEL expression %q: %w", expression, err)
	}
	compiled := &compiledCEL{program, checked.NativeRep()}
	celPrograms.Add(expression, compiled)
	return compiled, nil
}

// celConverter converts values to the types of unstructured objects.
type celConverter struct {
	size int
}

func (c *celConverter) grow(size int) error {
	if c.size += size; c.size > maxResult {
		return fmt.Errorf("it is larger than %d bytes", maxResult)
	}
	return nil
}

func (c *celConverter) convert(value ref.Val, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deep")
	}
	if err := c.grow(1); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.String:
		return string(v), c.grow(len(v))
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), c.grow(len(v))
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("%d is too large", uint64(v))
		}
		return int64(v), nil
	case types.Double:
		return number(float64(v))
	case types.Timestamp:
		return v.Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.Duration.String(), nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, nil
		}
		return c.convert(v.GetValue(), depth+1)
	case traits.Mapper:
		return c.convertMap(v, depth)
	case traits.Lister:
		return c.convertList(v, depth)
	}
	return nil, fmt.Errorf("a value of type %s cannot be part of an object", value.Type().TypeName())
}

func (c *celConverter) convertMap(value traits.Mapper, depth int) (any, error) {
	result := map[string]any{}
	for it := value.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		key, ok := k.(types.String)
		if !ok {
			return nil, fmt.Errorf("keys must be strings, %v is a %s", k.Value(), k.Type().TypeName())
		}
		if err := c.grow(len(key)); err != nil {
			return nil, err
		}
		element, err := c.convert(value.Get(key), depth+1)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", string(key), err)
		}
		result[string(key)] = element
	}
	return result, nil
}

func (c *celConverter) convertList(value traits.Lister, depth int) (any, error) {
	result := []any{}
	for it := value.Iterator(); it.HasNext() == types.True; {
		element, err := c.convert(it.Next(), depth+1)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", len(result), err)
		}
		result = append(result, element)
	}
	return result, nil
}

// number returns the type that decoding the number from JSON returns, so that comparisons with a decoded object work.
func number(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%v is no number of JSON", f)
	}
	const exact = 1 << 53
	if f == math.Trunc(f) && math.Abs(f) <= exact {
		return int64(f), nil
	}
	return f, nil
}
