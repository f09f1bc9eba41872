package dynamic

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	conversion "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
)

type validatingPolicies struct {
	*admission.Handler
	*policies[*admissionregistration.ValidatingAdmissionPolicy, *admissionregistration.ValidatingAdmissionPolicyBinding,
		*validating.Policy, *validating.PolicyBinding, validating.Validator]
}

// ValidatingPolicy returns the plug-in KCPValidatingAdmissionPolicy.
func (p *Plugins) ValidatingPolicy() admission.ValidationInterface {
	return validatingPolicies{newAllOperationsHandler(), newPolicies(p, policyKind[*admissionregistration.ValidatingAdmissionPolicy, *admissionregistration.ValidatingAdmissionPolicyBinding,
		*validating.Policy, *validating.PolicyBinding, validating.Validator]{
		policies: "validatingadmissionpolicies",
		bindings: "validatingadmissionpolicybindings",
		convertPolicy: func(in *admissionregistration.ValidatingAdmissionPolicy) (*validating.Policy, error) {
			out := &validating.Policy{}
			return out, conversion.Convert_admissionregistration_ValidatingAdmissionPolicy_To_v1_ValidatingAdmissionPolicy(in, out, nil)
		},
		convertBinding: func(in *admissionregistration.ValidatingAdmissionPolicyBinding) (*validating.PolicyBinding, error) {
			out := &validating.PolicyBinding{}
			return out, conversion.Convert_admissionregistration_ValidatingAdmissionPolicyBinding_To_v1_ValidatingAdmissionPolicyBinding(in, out, nil)
		},
		policy:  validating.NewValidatingAdmissionPolicyAccessor,
		binding: validating.NewValidatingAdmissionPolicyBindingAccessor,
		expressions: func(policy *validating.Policy) any {
			spec := policy.Spec
			return []any{spec.ParamKind != nil, spec.FailurePolicy, spec.MatchConditions, spec.Variables, spec.Validations, spec.AuditAnnotations}
		},
		compile: p.compilers.compileValidating,
	})}
}

// Validate implements admission.ValidationInterface.
func (v validatingPolicies) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	hooks, err := v.hooks(ctx, a, o)
	if err != nil || len(hooks) == 0 {
		return err
	}
	matcher := generic.NewPolicyMatcher(v.plugins.matcherFor(ctx))
	return validating.NewDispatcher(contextAuthorizer{ctx, v.plugins.config.Authorizer}, matcher).Dispatch(ctx, a, o, hooks)
}

// compileValidating compiles the expressions of a policy. An expression that does not compile fails at evaluation,
// according to the policy's failurePolicy.
func (c compilers) compileValidating(policy *validating.Policy) func(guard) validating.Validator {
	full := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	compiler, _, err := c.compilerFor(policy.Spec.Variables, full)
	if err != nil {
		failed := validating.NewValidator(nil, nil, nil, nil, policy.Spec.FailurePolicy, err)
		return func(guard) validating.Validator { return failed }
	}
	// Message expressions have no authorizer: messages are returned to the user and must not disclose the permissions
	// of others.
	messages := cel.OptionalVariableDeclarations{HasParams: full.HasParams}
	compile := func(expressions []cel.ExpressionAccessor, variables cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		return compiler.CompileCondition(expressions, variables, environment.StoredExpressions)
	}
	var matching cel.ConditionEvaluator
	if conditions := policy.Spec.MatchConditions; len(conditions) > 0 {
		matching = compile(matchExpressions(conditions), full)
	}
	// Upstream pairs the results of the three by index: messages have a nil where a validation has no expression.
	var validations, auditAnnotations, messageExpressions []cel.ExpressionAccessor
	for _, validation := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{
			Expression: validation.Expression, Message: validation.Message, Reason: validation.Reason,
		})
		var expression cel.ExpressionAccessor
		if validation.MessageExpression != "" {
			expression = &validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression}
		}
		messageExpressions = append(messageExpressions, expression)
	}
	for _, annotation := range policy.Spec.AuditAnnotations {
		auditAnnotations = append(auditAnnotations, &validating.AuditAnnotationCondition{Key: annotation.Key, ValueExpression: annotation.ValueExpression})
	}
	validation, audit, message := compile(validations, full), compile(auditAnnotations, full), compile(messageExpressions, messages)
	return func(g guard) validating.Validator {
		return validating.NewValidator(g.conditions(validation), g.matcher(matching, policy.Spec.FailurePolicy, policy.Name), g.conditions(audit), g.conditions(message), policy.Spec.FailurePolicy, nil)
	}
}
