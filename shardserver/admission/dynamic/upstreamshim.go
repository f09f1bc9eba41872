package dynamic

import (
	"fmt"
	"reflect"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissionregistrationinformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	admissionregistrationlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/shardserver/webhookclient"
)

// The stock webhook plug-ins hold one set of webhooks, for one cluster, and are too large to instantiate per logical
// cluster. Each contains a dispatcher, which takes the webhooks with the request and keeps no state, but its
// constructor is not exported. So there is one stock plug-in of each kind for all logical clusters, and its dispatcher
// is read by reflection here. This can be replaced once upstream exports a constructor.

// dispatcherOf configures a stock plug-in to dispatch to given webhooks and returns its dispatcher.
func dispatcherOf(webhook *generic.Webhook) (generic.Dispatcher, error) {
	webhook.SetAuthenticationInfoResolverWrapper(webhookclient.WrapResolver)
	webhook.SetExternalKubeInformerFactory(emptyInformerFactory{})
	field := reflect.ValueOf(webhook).Elem().FieldByName("dispatcher")
	if !field.IsValid() || field.Type() != reflect.TypeFor[generic.Dispatcher]() || field.IsNil() {
		return nil, fmt.Errorf("%T has no dispatcher: its package has changed", webhook)
	}
	return *(*generic.Dispatcher)(unsafe.Pointer(field.UnsafeAddr())), nil
}

// emptyInformerFactory is an informer factory for a plug-in without configurations of its own. Methods that upstream
// does not call are nil, here and below.
type emptyInformerFactory struct {
	informers.SharedInformerFactory
}

func (emptyInformerFactory) Core() core.Interface { return noCore{} }
func (emptyInformerFactory) Admissionregistration() admissionregistration.Interface {
	return noConfigurations{}
}

type noCore struct{ core.Interface }

func (noCore) V1() coreinformers.Interface { return noNamespaces{} }

type noNamespaces struct{ coreinformers.Interface }

func (noNamespaces) Namespaces() coreinformers.TypedNamespaceInformer { return emptyNamespaces{} }

// emptyNamespaces is an informer and lister that returns namespaces without labels. The labels do not matter: see
// scopedWebhook.GetParsedNamespaceSelector.
type emptyNamespaces struct {
	coreinformers.TypedNamespaceInformer
	corelisters.NamespaceLister
}

func (emptyNamespaces) Informer() cache.SharedIndexInformer   { return syncedInformer{} }
func (e emptyNamespaces) Lister() corelisters.NamespaceLister { return e }
func (emptyNamespaces) Get(string) (*corev1.Namespace, error) { return &corev1.Namespace{}, nil }

type noConfigurations struct {
	admissionregistration.Interface
}

func (noConfigurations) V1() admissionregistrationinformers.Interface { return noWebhooks{} }

type noWebhooks struct {
	admissionregistrationinformers.Interface
}

func (noWebhooks) MutatingWebhookConfigurations() admissionregistrationinformers.TypedMutatingWebhookConfigurationInformer {
	return noMutating{}
}

func (noWebhooks) ValidatingWebhookConfigurations() admissionregistrationinformers.TypedValidatingWebhookConfigurationInformer {
	return noValidating{}
}

type noMutating struct {
	admissionregistrationinformers.TypedMutatingWebhookConfigurationInformer
}

func (noMutating) Informer() cache.SharedIndexInformer { return syncedInformer{} }
func (noMutating) Lister() admissionregistrationlisters.MutatingWebhookConfigurationLister {
	return nil
}

type noValidating struct {
	admissionregistrationinformers.TypedValidatingWebhookConfigurationInformer
}

func (noValidating) Informer() cache.SharedIndexInformer { return syncedInformer{} }
func (noValidating) Lister() admissionregistrationlisters.ValidatingWebhookConfigurationLister {
	return nil
}

// syncedInformer is an informer that is synced and has no events.
type syncedInformer struct{ cache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }
func (syncedInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return syncedRegistration{}, nil
}

type syncedRegistration struct {
	cache.ResourceEventHandlerRegistration
}

func (syncedRegistration) HasSynced() bool { return true }
