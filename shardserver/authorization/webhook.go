package authorization

import (
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilwebhook "k8s.io/apiserver/pkg/util/webhook"
	stockwebhook "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
)

// WebhookConfig configures an authorization webhook.
type WebhookConfig struct {
	// Kubeconfig is the path of a kubeconfig file. Its cluster is the webhook, its user the credentials of this shard.
	Kubeconfig string
	// Version is the version of SubjectAccessReview that is sent and expected: v1 or v1beta1.
	Version string
	// AllowedTTL and DeniedTTL are how long responses are cached. The logical cluster is part of the request and thus
	// of the cache key.
	AllowedTTL, DeniedTTL time.Duration
}

// NewWebhook returns an authorizer that calls a webhook. If the webhook cannot be reached, it has no opinion.
func NewWebhook(config WebhookConfig) (authorizer.UnconditionalAuthorizer, error) {
	connection, err := utilwebhook.LoadKubeconfig(config.Kubeconfig, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the authorization webhook's kubeconfig: %w", err)
	}
	remote, err := stockwebhook.New(connection, config.Version, config.AllowedTTL, config.DeniedTTL,
		*genericoptions.DefaultAuthWebhookRetryBackoff(), authorizer.DecisionNoOpinion, nil, "webhook",
		metrics{WebhookMetrics: webhookmetrics.NewWebhookMetrics(), MatcherMetrics: authorizationcel.NewMatcherMetrics()},
		authorizationcel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())))
	if err != nil {
		return nil, fmt.Errorf("creating the authorization webhook: %w", err)
	}
	return remote, nil
}

// metrics combines the metrics that a stock webhook authorizer records. Request metrics are for remote callers of the
// generic library and are disabled in stock API servers, too.
type metrics struct {
	webhookmetrics.NoopRequestMetrics
	webhookmetrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}
