package dynamic

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/suspension"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// exemptResources are the resources that no policy applies to: reviews, and policies themselves, so that a broken
// policy can be repaired.
var exemptResources = sets.New(append(exclusion.Excluded(),
	admissionregistration.Resource("validatingadmissionpolicies"), admissionregistration.Resource("validatingadmissionpolicybindings"),
	admissionregistration.Resource("mutatingadmissionpolicies"), admissionregistration.Resource("mutatingadmissionpolicybindings"),
)...)

// policyKind are the differences between validating and mutating policies. IP and IB are policies and bindings as they
// are stored, P and B as upstream evaluates them, E is a compiled policy.
type policyKind[IP, IB storedObject, P, B runtime.Object, E any] struct {
	policies, bindings string
	convertPolicy      func(IP) (P, error)
	convertBinding     func(IB) (B, error)
	policy             func(P) generic.PolicyAccessor
	binding            func(B) generic.BindingAccessor
	// expressions returns everything that the compiled policy depends on.
	expressions func(P) any
	// compile returns what evaluates the policy with a guard. It is shared by all logical clusters.
	compile func(P) func(guard) E
}

// policies reads the policies that apply to a logical cluster (sourceOf) and prepares them for evaluation.
type policies[IP, IB storedObject, P, B runtime.Object, E any] struct {
	kind     policyKind[IP, IB, P, B, E]
	plugins  *Plugins
	policies *storage.Reader[IP]
	bindings *storage.Reader[IB]
	// existence indexes the logical clusters that have bindings: a policy without bindings has no effect.
	existence *existenceIndex
	prepared  preparedCache[[]boundPolicy[P, B]]
	// compiled is keyed by content and shared by all logical clusters.
	compiled *lruCache[contentKey, func() func(guard) E]
}

// contentKey is a hash of the input of compilation.
type contentKey [sha256.Size]byte

// boundPolicy is a policy with its bindings.
type boundPolicy[P, B runtime.Object] struct {
	policy   P
	bindings []B
	content  contentKey
	// params is the kind of the parameters, nil if there are none; wrong is set if the kind is invalid.
	params    *schema.GroupVersionKind
	configErr error
}

func newPolicies[IP, IB storedObject, P, B runtime.Object, E any](plugins *Plugins, of policyKind[IP, IB, P, B, E]) *policies[IP, IB, P, B, E] {
	bindings := storage.NewReader[IB](plugins.config.Registry, admissionregistration.Resource(of.bindings)).Global()
	prepared := newPreparedCache[[]boundPolicy[P, B]]()
	return &policies[IP, IB, P, B, E]{
		kind:      of,
		plugins:   plugins,
		policies:  storage.NewReader[IP](plugins.config.Registry, admissionregistration.Resource(of.policies)).Global(),
		bindings:  bindings,
		existence: plugins.newExistenceIndex(bindings, prepared.remove),
		prepared:  prepared,
		compiled:  newLRUCache[contentKey, func() func(guard) E](maxCompiled),
	}
}

// matcherFor returns a matcher of constraints that uses the namespaces of the request's logical cluster.
func (p *Plugins) matcherFor(ctx context.Context) *matching.Matcher {
	reader := namespaceReader{ctx: ctx, reader: p.namespaces}
	return matching.NewMatcher(reader, reader.client())
}

// hooks returns the policies for a request; most logical clusters have none.
func (p *policies[IP, IB, P, B, E]) hooks(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) ([]generic.PolicyHook[P, B, E], error) {
	if exemptResources.Has(a.GetResource().GroupResource()) || isInternalWrite(a) {
		return nil, nil
	}
	cluster, err := clusterOf(ctx)
	if err != nil {
		return nil, err
	}
	// Policies, bindings and parameters are read in the logical cluster of the policy; namespaces and authorization are
	// those of the request.
	source := p.plugins.sourceOf(ctx, cluster, a)
	policyCtx := logicalcluster.With(ctx, source)
	applicable, err := p.applicable(policyCtx)
	if err != nil {
		return nil, toReadError(err)
	}
	hooks := make([]generic.PolicyHook[P, B, E], 0, len(applicable))
	for _, of := range applicable {
		hook := generic.PolicyHook[P, B, E]{Policy: of.policy, Bindings: of.bindings, ConfigurationError: of.configErr}
		if of.params != nil {
			if !p.mayMatch(ctx, a, o, of.policy) {
				continue // before resolving its parameters
			}
			hook.ParamInformer, hook.ParamScope, hook.ConfigurationError = p.plugins.paramInformer(policyCtx, *of.params)
		}
		hook.Evaluator = p.evaluator(source, of)
		hooks = append(hooks, hook)
	}
	return hooks, nil
}

// mayMatch reports whether a policy may match. After an error it returns true, and the evaluation handles the error.
func (p *policies[IP, IB, P, B, E]) mayMatch(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, of P) bool {
	matches, _, _, err := generic.NewPolicyMatcher(p.plugins.matcherFor(ctx)).DefinitionMatches(a, o, p.kind.policy(of))
	return matches || err != nil
}

// evaluator returns what evaluates a policy of a logical cluster. What is compiled is shared with equal policies of all.
func (p *policies[IP, IB, P, B, E]) evaluator(cluster logicalcluster.Name, of boundPolicy[P, B]) E {
	compiled := p.compiled.getOrAdd(of.content, func() func() func(guard) E {
		return sync.OnceValue(func() func(guard) E { return p.kind.compile(of.policy) })
	})()
	object := p.kind.policies + "/" + p.kind.policy(of.policy).GetName()
	return compiled(guard{p.plugins.Suspensions, suspension.Expressions{Cluster: cluster, Object: object, Content: of.content}})
}

// applicable returns the policies of the context's logical cluster that have bindings.
func (p *policies[IP, IB, P, B, E]) applicable(ctx context.Context) ([]boundPolicy[P, B], error) {
	cluster, err := clusterOf(ctx)
	if err != nil {
		return nil, err
	}
	if p.existence.isAbsent(ctx, cluster) {
		p.prepared.remove(cluster)
		return nil, nil
	}
	bindings, err := listAll(ctx, p.bindings)
	if err != nil {
		return nil, err
	}
	if len(bindings) == 0 {
		p.prepared.remove(cluster)
		return nil, nil
	}
	all, err := listAll(ctx, p.policies)
	if err != nil {
		return nil, err
	}
	revisions := appendRevisions(appendRevisions(nil, all), bindings)
	return p.prepared.get(cluster, revisions, func() ([]boundPolicy[P, B], error) { return p.prepare(all, bindings) })
}

func (p *policies[IP, IB, P, B, E]) prepare(all []IP, bindings []IB) ([]boundPolicy[P, B], error) {
	bound := map[string][]B{}
	for _, one := range bindings {
		binding, err := p.kind.convertBinding(one)
		if err != nil {
			return nil, fmt.Errorf("converting policy binding %q: %w", one.GetName(), err)
		}
		name := p.kind.binding(binding).GetPolicyName().Name
		bound[name] = append(bound[name], binding)
	}
	var applicable []boundPolicy[P, B]
	for _, one := range all {
		if len(bound[one.GetName()]) == 0 {
			continue
		}
		converted, err := p.kind.convertPolicy(one)
		if err != nil {
			return nil, fmt.Errorf("converting policy %q: %w", one.GetName(), err)
		}
		of := boundPolicy[P, B]{policy: converted, bindings: slices.Clip(bound[one.GetName()])}
		if of.content, err = p.contentHash(converted); err != nil {
			return nil, fmt.Errorf("reading policy %q: %w", one.GetName(), err)
		}
		if params := p.kind.policy(converted).GetParamKind(); params != nil {
			version, err := schema.ParseGroupVersion(params.APIVersion)
			if err != nil {
				of.configErr = fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
			} else {
				of.params = new(version.WithKind(params.Kind))
			}
		}
		applicable = append(applicable, of)
	}
	return applicable, nil
}

// contentHash hashes the input of a policy's compilation. It includes the policy's name, which appears in metrics and
// errors.
func (p *policies[IP, IB, P, B, E]) contentHash(of P) (contentKey, error) {
	encoded, err := json.Marshal([]any{p.kind.policy(of).GetName(), p.kind.expressions(of)})
	return sha256.Sum256(encoded), err
}
