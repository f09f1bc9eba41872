package dynamic

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	conversion "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/outbound"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// ownCalls is how many of the shard's own requests may wait at once for the webhooks of one logical cluster, in
	// each phase. Controllers have few workers for all logical clusters; a webhook that hangs must not hold them all.
	ownCalls = 2
	// ownPatience is how long such a request waits for its turn before it fails, to be retried by its controller.
	ownPatience = 250 * time.Millisecond
)

// webhooks finds the stock webhook plug-in, P, made of the configurations, C, of a logical cluster.
type webhooks[C stored, P any] struct {
	reader  *storage.Reader[C]
	present *presence
	known   preparations[*instance[P]]
	make    func(logicalcluster.Name, []C) (P, []admissionregistrationv1.RuleWithOperations, error)
}

// instance is a stock plug-in for one logical cluster in one state of its configurations.
type instance[P any] struct {
	plugin P
	// rules are those of all webhooks.
	rules []admissionregistrationv1.RuleWithOperations
	// own has a place for each of the shard's own requests that may be on its way to the webhooks.
	own chan struct{}
}

func newWebhooks[C stored, P any](plugins *Plugins, resource string, build func(logicalcluster.Name, []C) (P, []admissionregistrationv1.RuleWithOperations, error)) *webhooks[C, P] {
	reader := storage.NewReader[C](plugins.config.Registry, admissionregistration.Resource(resource))
	return &webhooks[C, P]{reader: reader, present: plugins.presenceOf(reader), known: newPreparations[*instance[P]](), make: build}
}

// run calls the plug-in of the request's logical cluster, if that has any webhooks.
func (w *webhooks[C, P]) run(ctx context.Context, a admission.Attributes, call func(P, admission.Attributes) error) error {
	if rules.IsExemptAdmissionConfigurationResource(a) || bookkeeping(a) {
		return nil
	}
	cluster, err := clusterOf(ctx)
	if err != nil {
		return err
	}
	if !w.present.in(cluster) {
		w.known.none(cluster)
		return nil
	}
	configurations, err := readAll(ctx, w.reader)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if len(configurations) == 0 {
		w.known.none(cluster)
		return nil
	}
	of, err := w.known.get(cluster, appendRevisions(nil, configurations), func() (*instance[P], error) {
		plugin, rules, err := w.make(cluster, configurations)
		return &instance[P]{plugin, rules, make(chan struct{}, ownCalls)}, err
	})
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("preparing the webhooks of the workspace: %w", err))
	}
	if ofShard(a.GetUserInfo()) && of.concerns(a) {
		if err := of.enter(ctx); err != nil {
			return err
		}
		defer of.leave()
	}
	defer showCluster(cluster, a)()
	return call(of.plugin, contextual{a, ctx})
}

// concerns tells whether a webhook may be called for a request. Selectors and conditions are left to the plug-in.
func (i *instance[P]) concerns(a admission.Attributes) bool {
	return slices.ContainsFunc(i.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: rule, Attr: a}).Matches()
	})
}

func (i *instance[P]) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	select {
	case i.own <- struct{}{}:
		return nil
	case <-ctx.Done():
		return apierrors.NewServiceUnavailable("the webhooks of the workspace are busy with other requests of the system")
	}
}

func (i *instance[P]) leave() { <-i.own }

// MutatingWebhook returns the plug-in apis.kcp.io/MutatingWebhook.
func (p *Plugins) MutatingWebhook() admission.MutationInterface {
	return mutatingWebhooks{everything(), newWebhooks(p, "mutatingwebhookconfigurations", p.makeMutating)}
}

type mutatingWebhooks struct {
	*admission.Handler
	*webhooks[*admissionregistration.MutatingWebhookConfiguration, *mutating.Plugin]
}

// Admit implements admission.MutationInterface.
func (m mutatingWebhooks) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return m.run(ctx, a, func(plugin *mutating.Plugin, a admission.Attributes) error { return plugin.Admit(ctx, a, o) })
}

func (p *Plugins) makeMutating(cluster logicalcluster.Name, configurations []*admissionregistration.MutatingWebhookConfiguration) (*mutating.Plugin, []admissionregistrationv1.RuleWithOperations, error) {
	plugin, err := mutating.NewMutatingWebhook(nil)
	if err != nil {
		return nil, nil, err
	}
	var rules []admissionregistrationv1.RuleWithOperations
	v1 := make([]*admissionregistrationv1.MutatingWebhookConfiguration, len(configurations))
	for i, configuration := range configurations {
		v1[i] = &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := conversion.Convert_admissionregistration_MutatingWebhookConfiguration_To_v1_MutatingWebhookConfiguration(configuration, v1[i], nil); err != nil {
			return nil, nil, err
		}
		for _, webhook := range v1[i].Webhooks {
			rules = append(rules, webhook.Rules...)
		}
	}
	return plugin, rules, p.initialize(plugin.Webhook, cluster, content{mutating: v1})
}

// ValidatingWebhook returns the plug-in apis.kcp.io/ValidatingWebhook.
func (p *Plugins) ValidatingWebhook() admission.ValidationInterface {
	return validatingWebhooks{everything(), newWebhooks(p, "validatingwebhookconfigurations", p.makeValidating)}
}

type validatingWebhooks struct {
	*admission.Handler
	*webhooks[*admissionregistration.ValidatingWebhookConfiguration, *validating.Plugin]
}

// Validate implements admission.ValidationInterface.
func (v validatingWebhooks) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return v.run(ctx, a, func(plugin *validating.Plugin, a admission.Attributes) error { return plugin.Validate(ctx, a, o) })
}

func (p *Plugins) makeValidating(cluster logicalcluster.Name, configurations []*admissionregistration.ValidatingWebhookConfiguration) (*validating.Plugin, []admissionregistrationv1.RuleWithOperations, error) {
	plugin, err := validating.NewValidatingAdmissionWebhook(nil)
	if err != nil {
		return nil, nil, err
	}
	var rules []admissionregistrationv1.RuleWithOperations
	v1 := make([]*admissionregistrationv1.ValidatingWebhookConfiguration, len(configurations))
	for i, configuration := range configurations {
		v1[i] = &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := conversion.Convert_admissionregistration_ValidatingWebhookConfiguration_To_v1_ValidatingWebhookConfiguration(configuration, v1[i], nil); err != nil {
			return nil, nil, err
		}
		for _, webhook := range v1[i].Webhooks {
			rules = append(rules, webhook.Rules...)
		}
	}
	return plugin, rules, p.initialize(plugin.Webhook, cluster, content{validating: v1})
}

// initialize does for a stock plug-in what upstream's initializers do, for one logical cluster.
func (p *Plugins) initialize(webhook *generic.Webhook, cluster logicalcluster.Name, of content) error {
	ctx := logicalcluster.With(context.Background(), cluster)
	reader := namespaceReader{ctx: ctx, reader: p.namespaces}
	of.namespaces = reader
	webhook.SetAuthenticationInfoResolverWrapper(outbound.Wrap)
	webhook.SetExternalKubeClientSet(reader.client())
	webhook.SetExternalKubeInformerFactory(factory{content: &of})
	webhook.SetAuthorizer(asked{ctx, p.config.Authorizer})
	if err := webhook.ValidateInitialization(); err != nil {
		return err
	}
	webhook.SetReadyFunc(nil) // everything is there; asking would cost a timer per request
	return nil
}
