package dynamic

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissionregistrationinformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	admissionregistrationlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// The stock webhook plug-ins take what they need out of an informer factory. The one below has what one of them asks
// for, already there, and nothing that runs: the configurations of a plug-in never change, it is replaced instead.

// content is what the factory's listers return.
type content struct {
	namespaces corelisters.NamespaceLister
	mutating   []*admissionregistrationv1.MutatingWebhookConfiguration
	validating []*admissionregistrationv1.ValidatingWebhookConfiguration
}

// factory shows the content as an informer factory. What upstream does not ask for is nil, here and below.
type factory struct {
	informers.SharedInformerFactory
	content *content
}

func (f factory) Core() core.Interface { return coreGroup{content: f.content} }
func (f factory) Admissionregistration() admissionregistration.Interface {
	return admissionGroup{content: f.content}
}

type coreGroup struct {
	core.Interface
	content *content
}

func (g coreGroup) V1() coreinformers.Interface { return coreVersion{content: g.content} }

type coreVersion struct {
	coreinformers.Interface
	content *content
}

func (v coreVersion) Namespaces() coreinformers.NamespaceInformer {
	return namespaceInformer{v.content.namespaces}
}

type namespaceInformer struct{ lister corelisters.NamespaceLister }

func (namespaceInformer) Informer() cache.SharedIndexInformer   { return settled{} }
func (i namespaceInformer) Lister() corelisters.NamespaceLister { return i.lister }

type admissionGroup struct {
	admissionregistration.Interface
	content *content
}

func (g admissionGroup) V1() admissionregistrationinformers.Interface {
	return admissionVersion{content: g.content}
}

type admissionVersion struct {
	admissionregistrationinformers.Interface
	content *content
}

func (v admissionVersion) MutatingWebhookConfigurations() admissionregistrationinformers.MutatingWebhookConfigurationInformer {
	return mutatingInformer{configurations: v.content.mutating}
}

func (v admissionVersion) ValidatingWebhookConfigurations() admissionregistrationinformers.ValidatingWebhookConfigurationInformer {
	return validatingInformer{configurations: v.content.validating}
}

// mutatingInformer is informer and lister in one.
type mutatingInformer struct {
	admissionregistrationlisters.MutatingWebhookConfigurationLister
	configurations []*admissionregistrationv1.MutatingWebhookConfiguration
}

func (mutatingInformer) Informer() cache.SharedIndexInformer { return settled{} }
func (i mutatingInformer) Lister() admissionregistrationlisters.MutatingWebhookConfigurationLister {
	return i
}
func (i mutatingInformer) List(labels.Selector) ([]*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return i.configurations, nil
}

// validatingInformer is informer and lister in one.
type validatingInformer struct {
	admissionregistrationlisters.ValidatingWebhookConfigurationLister
	configurations []*admissionregistrationv1.ValidatingWebhookConfiguration
}

func (validatingInformer) Informer() cache.SharedIndexInformer { return settled{} }
func (i validatingInformer) Lister() admissionregistrationlisters.ValidatingWebhookConfigurationLister {
	return i
}
func (i validatingInformer) List(labels.Selector) ([]*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return i.configurations, nil
}

// settled is an informer to which nothing happens any more.
type settled struct{ cache.SharedIndexInformer }

func (settled) HasSynced() bool { return true }
func (settled) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return registration{}, nil
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }
