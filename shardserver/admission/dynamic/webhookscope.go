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

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/suspension"
)

// scopedWebhook is a webhook in the scope of one request. The webhook itself is shared; the conditions that depend on
// the logical cluster are evaluated for the request: labels of its namespace, and decisions of the authorizer.
type scopedWebhook struct {
	webhook.WebhookAccessor
	scope *webhookScope
}

// webhookScope is the scope of one request for its webhooks.
type webhookScope struct {
	attributes admission.Attributes
	namespaces *namespace.Matcher
	authorizer authorizer.UnconditionalAuthorizer
	// source is the logical cluster of the webhooks.
	source  logicalcluster.Name
	tracker *suspension.Tracker
}

func (p *Plugins) newWebhookScope(ctx context.Context, source logicalcluster.Name, a admission.Attributes) *webhookScope {
	reader := namespaceReader{ctx: ctx, reader: p.namespaces}
	return &webhookScope{
		attributes: a,
		namespaces: &namespace.Matcher{NamespaceLister: reader, Client: reader.client()},
		authorizer: contextAuthorizer{ctx, p.config.Authorizer},
		source:     source,
		tracker:    p.Suspensions,
	}
}

// wrap returns the webhooks in the scope of the request.
func (w *webhookScope) wrap(webhooks []webhook.WebhookAccessor) []webhook.WebhookAccessor {
	scoped := make([]webhook.WebhookAccessor, len(webhooks))
	for i, one := range webhooks {
		scoped[i] = scopedWebhook{one, w}
	}
	return scoped
}

// GetParsedNamespaceSelector implements webhook.WebhookAccessor. Upstream would evaluate the selector with its own
// namespace lister, so the selector is evaluated here, and the returned one selects everything or nothing. No selector
// matches a namespace that does not exist: the request fails for that reason anyway.
func (w scopedWebhook) GetParsedNamespaceSelector() (labels.Selector, error) {
	if isNamespaceWrite(w.scope.attributes) {
		return w.WebhookAccessor.GetParsedNamespaceSelector()
	}
	matches, err := w.scope.namespaces.MatchNamespaceSelector(w.WebhookAccessor, w.scope.attributes)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case matches:
		return labels.Everything(), nil
	}
	return labels.Nothing(), nil
}

// isNamespaceWrite reports whether selectors apply to the labels of the request's object, which an earlier webhook may
// have changed. Upstream evaluates them without a namespace lister.
func isNamespaceWrite(a admission.Attributes) bool {
	return a.GetResource().Resource == "namespaces" && a.GetSubresource() == "" &&
		(a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// GetCompiledMatcher implements webhook.WebhookAccessor.
func (w scopedWebhook) GetCompiledMatcher(compiler cel.ConditionCompiler) matchconditions.Matcher {
	g := guard{w.scope.tracker, matchConditionsOf(w.scope.source, w.WebhookAccessor)}
	return conditions{w.WebhookAccessor.GetCompiledMatcher(guardedCompiler{compiler}), w.scope.authorizer, g}
}

// conditions are match conditions that authorize in the request's logical cluster, and have the guard of the webhook's.
type conditions struct {
	matchconditions.Matcher
	authorizer authorizer.UnconditionalAuthorizer
	guard      guard
}

// Match implements matchconditions.Matcher.
func (c conditions) Match(ctx context.Context, a *admission.VersionedAttributes, params runtime.Object, _ authorizer.UnconditionalAuthorizer) matchconditions.MatchResult {
	return c.Matcher.Match(context.WithValue(ctx, guardKey{}, c.guard), a, params, c.authorizer)
}
