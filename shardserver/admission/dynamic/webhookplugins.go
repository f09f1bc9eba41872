package dynamic

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	conversion "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
)

type mutatingWebhooks struct {
	*admission.Handler
	*webhooks[*admissionregistration.MutatingWebhookConfiguration]
}

// MutatingWebhook returns the plug-in apis.kcp.io/MutatingWebhook.
func (p *Plugins) MutatingWebhook() admission.MutationInterface {
	return mutatingWebhooks{newAllOperationsHandler(), newWebhooks(p, "mutatingwebhookconfigurations", p.mutating, mutatingWebhooksOf)}
}

// Admit implements admission.MutationInterface.
func (m mutatingWebhooks) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return m.dispatch(ctx, a, o)
}

func mutatingWebhooksOf(configuration *admissionregistration.MutatingWebhookConfiguration) ([]webhookDefinition, error) {
	var v1 admissionregistrationv1.MutatingWebhookConfiguration
	if err := conversion.Convert_admissionregistration_MutatingWebhookConfiguration_To_v1_MutatingWebhookConfiguration(configuration, &v1, nil); err != nil {
		return nil, err
	}
	all := make([]webhookDefinition, len(v1.Webhooks))
	for i := range v1.Webhooks {
		one := &v1.Webhooks[i]
		all[i] = webhookDefinition{one.Name, one, one.Rules, func(uid string) webhook.WebhookAccessor {
			return webhook.NewMutatingWebhookAccessor(uid, v1.Name, one)
		}}
	}
	return all, nil
}

type validatingWebhooks struct {
	*admission.Handler
	*webhooks[*admissionregistration.ValidatingWebhookConfiguration]
}

// ValidatingWebhook returns the plug-in apis.kcp.io/ValidatingWebhook.
func (p *Plugins) ValidatingWebhook() admission.ValidationInterface {
	return validatingWebhooks{newAllOperationsHandler(), newWebhooks(p, "validatingwebhookconfigurations", p.validating, validatingWebhooksOf)}
}

// Validate implements admission.ValidationInterface.
func (v validatingWebhooks) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return v.dispatch(ctx, a, o)
}

func validatingWebhooksOf(configuration *admissionregistration.ValidatingWebhookConfiguration) ([]webhookDefinition, error) {
	var v1 admissionregistrationv1.ValidatingWebhookConfiguration
	if err := conversion.Convert_admissionregistration_ValidatingWebhookConfiguration_To_v1_ValidatingWebhookConfiguration(configuration, &v1, nil); err != nil {
		return nil, err
	}
	all := make([]webhookDefinition, len(v1.Webhooks))
	for i := range v1.Webhooks {
		one := &v1.Webhooks[i]
		all[i] = webhookDefinition{one.Name, one, one.Rules, func(uid string) webhook.WebhookAccessor {
			return webhook.NewValidatingWebhookAccessor(uid, v1.Name, one)
		}}
	}
	return all, nil
}

// newDispatchers returns the stock dispatchers of mutating and of validating webhooks.
func newDispatchers() (mutatingDispatcher, validatingDispatcher generic.Dispatcher, err error) {
	mutatingPlugin, err := mutating.NewMutatingWebhook(nil)
	if err != nil {
		return nil, nil, err
	}
	validatingPlugin, err := validating.NewValidatingAdmissionWebhook(nil)
	if err != nil {
		return nil, nil, err
	}
	if mutatingDispatcher, err = dispatcherOf(mutatingPlugin.Webhook); err != nil {
		return nil, nil, err
	}
	validatingDispatcher, err = dispatcherOf(validatingPlugin.Webhook)
	return mutatingDispatcher, validatingDispatcher, err
}
