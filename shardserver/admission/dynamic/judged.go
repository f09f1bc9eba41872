package dynamic

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// judged is a webhook in the scope of one request. The webhook itself is shared; the conditions that depend on the
// logical cluster are evaluated for the request: labels of its namespace, and decisions of the authorizer.
type judged struct {
	webhook.WebhookAccessor
	by *judge
}

// judge is the scope of one request for its webhooks.
type judge struct {
	attributes admission.Attributes
	namespaces *namespace.Matcher
	authorizer authorizer.UnconditionalAuthorizer
}

func (p *Plugins) judge(ctx context.Context, a admission.Attributes) *judge {
	reader := namespaceReader{ctx: ctx, reader: p.namespaces}
	return &judge{
		attributes: a,
		namespaces: &namespace.Matcher{NamespaceLister: reader, Client: reader.client()},
		authorizer: asked{ctx, p.config.Authorizer},
	}
}

// all returns the webhooks in the scope of the request.
func (j *judge) all(webhooks []webhook.WebhookAccessor) []webhook.WebhookAccessor {
	seen := make([]webhook.WebhookAccessor, len(webhooks))
	for i, one := range webhooks {
		seen[i] = judged{one, j}
	}
	return seen
}

// GetParsedNamespaceSelector implements webhook.WebhookAccessor. Upstream would evaluate the selector with its own
// namespace lister, so the selector is evaluated here, and the returned one selects everything or nothing. No selector
// matches a namespace that does not exist: the request fails for that reason anyway.
func (w judged) GetParsedNamespaceSelector() (labels.Selector, error) {
	if ofItself(w.by.attributes) {
		return w.WebhookAccessor.GetParsedNamespaceSelector()
	}
	matches, err := w.by.namespaces.MatchNamespaceSelector(w.WebhookAccessor, w.by.attributes)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case matches:
		return labels.Everything(), nil
	}
	return labels.Nothing(), nil
}

// ofItself reports whether selectors apply to the labels of the request's object, which an earlier webhook may have
// changed. Upstream evaluates them without a namespace lister.
func ofItself(a admission.Attributes) bool {
	return a.GetResource().Resource == "namespaces" && a.GetSubresource() == "" &&
		(a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// GetCompiledMatcher implements webhook.WebhookAccessor.
func (w judged) GetCompiledMatcher(compiler cel.ConditionCompiler) matchconditions.Matcher {
	return conditions{w.WebhookAccessor.GetCompiledMatcher(compiler), w.by.authorizer}
}

// conditions are match conditions that authorize in the request's logical cluster.
type conditions struct {
	matchconditions.Matcher
	authorizer authorizer.UnconditionalAuthorizer
}

// Match implements matchconditions.Matcher.
func (c conditions) Match(ctx context.Context, a *admission.VersionedAttributes, params runtime.Object, _ authorizer.UnconditionalAuthorizer) matchconditions.MatchResult {
	return c.Matcher.Match(ctx, a, params, c.authorizer)
}
