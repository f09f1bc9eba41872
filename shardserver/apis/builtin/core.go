package builtin

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	configmapstore "k8s.io/kubernetes/pkg/registry/core/configmap/storage"
	eventstore "k8s.io/kubernetes/pkg/registry/core/event/storage"
	namespacestore "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	secretstore "k8s.io/kubernetes/pkg/registry/core/secret/storage"
	serviceaccountstore "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
)

// NewCoreGroup returns the legacy group. It must be installed first: others depend on the content of its secrets. Upstream's
// constructor is not used because it also opens the storage, with watch cache, of disabled resources.
func NewCoreGroup(cfg Config, getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	storages := map[string]rest.Storage{}
	for _, add := range []func(Config, generic.RESTOptionsGetter, map[string]rest.Storage) error{
		addNamespaces, addConfigMaps, addSecretsAndServiceAccounts, addEvents, addResourceQuotas,
	} {
		if err := add(cfg, getter, storages); err != nil {
			return genericapiserver.APIGroupInfo{}, fmt.Errorf("creating the core group: %w", err)
		}
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(corev1.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	info.VersionedResourcesStorageMap[corev1.SchemeGroupVersion.Version] = storages
	return info, nil
}

func addNamespaces(_ Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	namespaces, status, finalize, err := namespacestore.NewREST(getter)
	if err != nil {
		return err
	}
	storages["namespaces"], storages["namespaces/status"], storages["namespaces/finalize"] = namespaces, status, finalize
	return nil
}

func addConfigMaps(_ Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	configMaps, err := configmapstore.NewREST(getter)
	storages["configmaps"] = configMaps
	return err
}

func addSecretsAndServiceAccounts(cfg Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	secrets, err := secretstore.NewREST(getter)
	if err != nil {
		return err
	}
	// Tokens can be bound to secrets. Pods and nodes do not exist in logical clusters, and nothing here calls a webhook
	// with a token that is bound to its configuration.
	accounts, err := serviceaccountstore.NewREST(getter, cfg.TokenIssuer, cfg.APIAudiences, authorizerfactory.NewAlwaysDenyAuthorizer(), cfg.TokenMaxExpiration,
		notFoundGetter{schema.GroupResource{Resource: "pods"}}, secrets.Store, notFoundGetter{schema.GroupResource{Resource: "nodes"}},
		absentWebhooks[*admissionregistrationv1.ValidatingWebhookConfiguration]{}, absentWebhooks[*admissionregistrationv1.MutatingWebhookConfiguration]{},
		cfg.ExtendTokens, cfg.TokenMaxExtension)
	if err != nil {
		return err
	}
	storages["secrets"], storages["serviceaccounts"], storages["serviceaccounts/token"] = secrets, accounts, accounts.Token
	return nil
}

func addEvents(cfg Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	events, err := eventstore.NewREST(getter, uint64(cfg.EventTTL.Seconds()))
	storages["events"] = events
	return err
}

// notFoundGetter is the storage of a resource that does not exist in logical clusters.
type notFoundGetter struct{ resource schema.GroupResource }

// Get implements rest.Getter. It always returns NotFound.
func (n notFoundGetter) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(n.resource, name)
}

// absentWebhooks are the webhook configurations that tokens can be bound to: none.
type absentWebhooks[T any] struct{}

// Get always returns NotFound.
func (absentWebhooks[T]) Get(_ context.Context, name string, _ metav1.GetOptions) (T, error) {
	var none T
	return none, apierrors.NewNotFound(admissionregistrationv1.Resource("webhookconfigurations"), name)
}
