package dynamic

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	conversion "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
)

type mutatingPolicies struct {
	*admission.Handler
	*policies[*admissionregistration.MutatingAdmissionPolicy, *admissionregistration.MutatingAdmissionPolicyBinding,
		*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]
}

// MutatingPolicy returns the plug-in KCPMutatingAdmissionPolicy. It does not handle DELETE, which has no object to
// mutate.
func (p *Plugins) MutatingPolicy() admission.MutationInterface {
	handler := admission.NewHandler(admission.Connect, admission.Create, admission.Update)
	return mutatingPolicies{handler, newPolicies(p, policyKind[*admissionregistration.MutatingAdmissionPolicy, *admissionregistration.MutatingAdmissionPolicyBinding,
		*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]{
		policies: "mutatingadmissionpolicies",
		bindings: "mutatingadmissionpolicybindings",
		convertPolicy: func(in *admissionregistration.MutatingAdmissionPolicy) (*mutating.Policy, error) {
			out := &mutating.Policy{}
			return out, conversion.Convert_admissionregistration_MutatingAdmissionPolicy_To_v1_MutatingAdmissionPolicy(in, out, nil)
		},
		convertBinding: func(in *admissionregistration.MutatingAdmissionPolicyBinding) (*mutating.PolicyBinding, error) {
			out := &mutating.PolicyBinding{}
			return out, conversion.Convert_admissionregistration_MutatingAdmissionPolicyBinding_To_v1_MutatingAdmissionPolicyBinding(in, out, nil)
		},
		policy:  mutating.NewMutatingAdmissionPolicyAccessor,
		binding: mutating.NewMutatingAdmissionPolicyBindingAccessor,
		expressions: func(policy *mutating.Policy) any {
			spec := policy.Spec
			return []any{spec.ParamKind != nil, spec.FailurePolicy, spec.MatchConditions, spec.Variables, spec.Mutations}
		},
		compile: p.compilers.compileMutating,
	})}
}

// Admit implements admission.MutationInterface.
func (m mutatingPolicies) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	hooks, err := m.hooks(ctx, a, o)
	if err != nil || len(hooks) == 0 {
		return err
	}
	authorizer, types := contextAuthorizer{ctx, m.plugins.config.Authorizer}, typeConverters{ctx, m.plugins.schemas}
	return mutating.NewDispatcher(authorizer, m.plugins.matcherFor(ctx), types).Dispatch(ctx, a, o, hooks)
}

// compileMutating compiles the expressions of a policy. An expression that does not compile fails at evaluation,
// according to the policy's failurePolicy.
func (c compilers) compileMutating(policy *mutating.Policy) func(guard) mutating.PolicyEvaluator {
	available := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	compiler, composed, err := c.compilerFor(policy.Spec.Variables, available)
	if err != nil {
		return func(guard) mutating.PolicyEvaluator { return mutating.PolicyEvaluator{Error: err} }
	}
	var matching cel.ConditionEvaluator
	if conditions := policy.Spec.MatchConditions; len(conditions) > 0 {
		matching = compiler.CompileCondition(matchExpressions(conditions), available, environment.StoredExpressions)
	}
	available.HasPatchTypes = true
	compile := func(expression cel.ExpressionAccessor) cel.MutatingEvaluator {
		return boundedMutation{compiler.CompileMutatingEvaluator(expression, available, environment.StoredExpressions)}
	}
	var patchers []patch.Patcher
	for _, mutation := range policy.Spec.Mutations {
		switch {
		case mutation.PatchType == admissionregistrationv1.PatchTypeJSONPatch && mutation.JSONPatch != nil:
			patchers = append(patchers, patch.NewJSONPatcher(compile(&patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression})))
		case mutation.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && mutation.ApplyConfiguration != nil:
			patchers = append(patchers, patch.NewApplyConfigurationPatcher(compile(&patch.ApplyConfigurationCondition{Expression: mutation.ApplyConfiguration.Expression})))
			// Validation refuses other types; upstream treats them as an error of the policy.
		}
	}
	return func(g guard) mutating.PolicyEvaluator {
		evaluator := mutating.PolicyEvaluator{CompositedCompiler: composed, Matcher: g.matcher(matching, policy.Spec.FailurePolicy, policy.Name)}
		for _, patcher := range patchers {
			evaluator.Mutators = append(evaluator.Mutators, guardedPatcher{patcher, g})
		}
		return evaluator
	}
}
