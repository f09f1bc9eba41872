package dynamic

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/atoll-dev/atoll/internal/celcost"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/suspension"
)

// guard protects the server from the expressions of one policy or webhook: it does not evaluate them while they are
// suspended, or for a request that has ended.
type guard struct {
	tracker     *suspension.Tracker
	expressions suspension.Expressions
}

// check returns why the expressions must not be evaluated.
func (g guard) check(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("the request has ended before %s was evaluated: %w", g.expressions.Object, context.Cause(ctx))
	}
	return g.tracker.Check(g.expressions)
}

// record records the outcome of an evaluation.
func (g guard) record(err error) {
	if err != nil {
		g.tracker.Record(g.expressions, err.Error())
	}
}

// conditions returns an evaluator with the guard.
func (g guard) conditions(evaluator cel.ConditionEvaluator) cel.ConditionEvaluator {
	return guardedConditions{evaluator, g}
}

// matcher returns the matcher of a policy's match conditions, nil if it has none.
func (g guard) matcher(conditions cel.ConditionEvaluator, failurePolicy *admissionregistrationv1.FailurePolicyType, policy string) matchconditions.Matcher {
	if conditions == nil {
		return nil
	}
	return matchconditions.NewMatcher(g.conditions(conditions), failurePolicy, "policy", "validate", policy)
}

// guardedConditions evaluates expressions of a policy, or the match conditions of a webhook.
type guardedConditions struct {
	cel.ConditionEvaluator
	guard
}

// ForInput implements cel.ConditionEvaluator.
func (c guardedConditions) ForInput(ctx context.Context, a *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, inputs cel.OptionalVariableBindings,
	namespace *corev1.Namespace, budget int64) ([]cel.EvaluationResult, int64, error) {
	if err := c.check(ctx); err != nil {
		return nil, -1, err
	}
	results, remaining, err := c.ConditionEvaluator.ForInput(ctx, a, request, inputs, namespace, budget)
	c.record(err)
	for _, result := range results {
		c.record(result.Error)
	}
	return results, remaining, err
}

// guardedPatcher evaluates a mutation.
type guardedPatcher struct {
	patch.Patcher
	guard
}

// Patch implements patch.Patcher.
func (p guardedPatcher) Patch(ctx context.Context, request patch.Request, budget int64) (runtime.Object, error) {
	if err := p.check(ctx); err != nil {
		return nil, err
	}
	patched, err := p.Patcher.Patch(ctx, request, budget)
	p.record(err)
	return patched, err
}

// boundedMutation limits the deep size of a mutation's result, which is written out as native types.
type boundedMutation struct{ cel.MutatingEvaluator }

// maxMutation is the deep size of the largest result of a mutation. A request of the maximal size has less.
const maxMutation = 1 << 20

// ForInput implements cel.MutatingEvaluator.
func (m boundedMutation) ForInput(ctx context.Context, a *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, inputs cel.OptionalVariableBindings,
	namespace *corev1.Namespace, budget int64) (cel.EvaluationResult, int64, error) {
	result, remaining, err := m.MutatingEvaluator.ForInput(ctx, a, request, inputs, namespace, budget)
	if err == nil && result.Error == nil && result.EvalResult != nil && celcost.Size(result.EvalResult, maxMutation) > maxMutation {
		return cel.EvaluationResult{}, -1, fmt.Errorf("the result of the mutation is too large: cost limit exceeded")
	}
	return result, remaining, err
}

// guardKey is the key of the guard in the context of match conditions of webhooks, whose compiled form is shared.
type guardKey struct{}

// guardedCompiler compiles match conditions of webhooks that have the guard of their context.
type guardedCompiler struct{ cel.ConditionCompiler }

// CompileCondition implements cel.ConditionCompiler.
func (c guardedCompiler) CompileCondition(expressions []cel.ExpressionAccessor, variables cel.OptionalVariableDeclarations, mode environment.Type) cel.ConditionEvaluator {
	return contextGuarded{c.ConditionCompiler.CompileCondition(expressions, variables, mode)}
}

type contextGuarded struct{ cel.ConditionEvaluator }

// ForInput implements cel.ConditionEvaluator.
func (c contextGuarded) ForInput(ctx context.Context, a *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, inputs cel.OptionalVariableBindings,
	namespace *corev1.Namespace, budget int64) ([]cel.EvaluationResult, int64, error) {
	evaluator := c.ConditionEvaluator
	if g, ok := ctx.Value(guardKey{}).(guard); ok {
		evaluator = g.conditions(evaluator)
	}
	return evaluator.ForInput(ctx, a, request, inputs, namespace, budget)
}

// matchConditionsOf identifies the match conditions of a webhook.
func matchConditionsOf(cluster logicalcluster.Name, hook webhook.WebhookAccessor) suspension.Expressions {
	resource := "validatingwebhookconfigurations/"
	if _, mutates := hook.GetMutatingWebhook(); mutates {
		resource = "mutatingwebhookconfigurations/"
	}
	hash := sha256.New()
	// Texts can always be encoded and hashed.
	_ = json.NewEncoder(hash).Encode(hook.GetMatchConditions())
	return suspension.Expressions{Cluster: cluster, Object: resource + hook.GetConfigurationName(), Content: [sha256.Size]byte(hash.Sum(nil))}
}
