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

// judged is a webhook as one request sees it. The webhook itself is shared; what decides whether it is called and depends
// on the logical cluster comes from the request: the labels of its namespace, and the answers of the authorizer.
type judged struct {
	webhook.WebhookAccessor
	by *judge
}

// judge is what webhooks need to know of one request.
type judge struct {
	attributes admission.Attributes
	namespaces *namespace.Matcher
	authorizer authorizer.Authorizer
}

func (p *Plugins) judge(ctx context.Context, a admission.Attributes) *judge {
	reader := namespaceReader{ctx: ctx, reader: p.namespaces}
	return &judge{
		attributes: a,
		namespaces: &namespace.Matcher{NamespaceLister: reader, Client: reader.client()},
		authorizer: asked{ctx, p.config.Authorizer},
	}
}

// all returns the webhooks as this request sees them.
func (j *judge) all(webhooks []webhook.WebhookAccessor) []webhook.WebhookAccessor {
	seen := make([]webhook.WebhookAccessor, len(webhooks))
	for i, one := range webhooks {
		seen[i] = judged{one, j}
	}
	return seen
}

// GetParsedNamespaceSelector implements webhook.WebhookAccessor. Upstream would evaluate the selector with namespaces of
// its own, so the selector is evaluated here, and what is returned selects everything or nothing. A namespace that does
// not exist is selected by nobody: the request fails for that by itself.
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

// ofItself tells whether the labels that a selector sees are those of the request's object, as a webhook before may have
// changed it. Upstream needs no namespaces to evaluate that.
func ofItself(a admission.Attributes) bool {
	return a.GetResource().Resource == "namespaces" && a.GetSubresource() == "" &&
		(a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// GetCompiledMatcher implements webhook.WebhookAccessor.
func (w judged) GetCompiledMatcher(compiler cel.ConditionCompiler) matchconditions.Matcher {
	return conditions{w.WebhookAccessor.GetCompiledMatcher(compiler), w.by.authorizer}
}

// conditions are match conditions that ask the authorizer about the request's logical cluster.
type conditions struct {
	matchconditions.Matcher
	authorizer authorizer.Authorizer
}

// Match implements matchconditions.Matcher.
func (c conditions) Match(ctx context.Context, a *admission.VersionedAttributes, params runtime.Object, _ authorizer.Authorizer) matchconditions.MatchResult {
	return c.Matcher.Match(ctx, a, params, c.authorizer)
}
