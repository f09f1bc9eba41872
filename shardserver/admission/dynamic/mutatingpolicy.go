package dynamic

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
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
func (c compilers) compileMutating(policy *mutating.Policy) mutating.PolicyEvaluator {
	available := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	compiler, composed, err := c.compilerFor(policy.Spec.Variables, available)
	if err != nil {
		return mutating.PolicyEvaluator{Error: err}
	}
	evaluator := mutating.PolicyEvaluator{CompositedCompiler: composed}
	if conditions := policy.Spec.MatchConditions; len(conditions) > 0 {
		compiled := compiler.CompileCondition(matchExpressions(conditions), available, environment.StoredExpressions)
		evaluator.Matcher = matchconditions.NewMatcher(compiled, policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	available.HasPatchTypes = true
	for _, mutation := range policy.Spec.Mutations {
		var patcher patch.Patcher
		switch {
		case mutation.PatchType == admissionregistrationv1.PatchTypeJSONPatch && mutation.JSONPatch != nil:
			condition := &patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}
			patcher = patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(condition, available, environment.StoredExpressions))
		case mutation.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && mutation.ApplyConfiguration != nil:
			condition := &patch.ApplyConfigurationCondition{Expression: mutation.ApplyConfiguration.Expression}
			patcher = patch.NewApplyConfigurationPatcher(compiler.CompileMutatingEvaluator(condition, available, environment.StoredExpressions))
		default:
			continue // validation refuses other types; upstream treats them as an error of the policy
		}
		evaluator.Mutators = append(evaluator.Mutators, patcher)
	}
	return evaluator
}
