package builtin

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // registers the types in the scheme
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	mutatingpolicystore "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy/storage"
	mutatingbindingstore "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding/storage"
	mutatingwebhookstore "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration/storage"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	validatingpolicystore "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy/storage"
	validatingbindingstore "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding/storage"
	validatingwebhookstore "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration/storage"
)

// NewAdmissionRegistrationGroup returns the group of webhook configurations and admission policies. Upstream's constructor is
// not used because it resolves the resource of a paramKind by the discovery of one server, without logical cluster.
func NewAdmissionRegistrationGroup(cfg Config, getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	storages := map[string]rest.Storage{}
	for _, add := range []func(Config, generic.RESTOptionsGetter, map[string]rest.Storage) error{
		addWebhookConfigurations, addValidatingPolicies, addMutatingPolicies,
	} {
		if err := add(cfg, getter, storages); err != nil {
			return genericapiserver.APIGroupInfo{}, fmt.Errorf("creating group %s: %w", admissionregistrationv1.GroupName, err)
		}
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(admissionregistrationv1.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	info.VersionedResourcesStorageMap[admissionregistrationv1.SchemeGroupVersion.Version] = storages
	return info, nil
}

func addWebhookConfigurations(_ Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	validating, err := validatingwebhookstore.NewREST(getter)
	if err != nil {
		return err
	}
	mutating, err := mutatingwebhookstore.NewREST(getter)
	storages["validatingwebhookconfigurations"], storages["mutatingwebhookconfigurations"] = validating, mutating
	return err
}

func addValidatingPolicies(cfg Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	authorizer, kinds := paramAuthorizer{cfg.Authorizer, cfg.ResolveResource}, resolver.ResourceResolverFunc(resolveKindPlaceholder)
	policies, status, err := validatingpolicystore.NewREST(getter, authorizer, kinds)
	if err != nil {
		return err
	}
	bindings, err := validatingbindingstore.NewREST(getter, authorizer, &validatingbindingstore.DefaultPolicyGetter{Getter: policies}, kinds)
	storages["validatingadmissionpolicies"], storages["validatingadmissionpolicies/status"] = policies, status
	storages["validatingadmissionpolicybindings"] = bindings
	return err
}

func addMutatingPolicies(cfg Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	authorizer, kinds := paramAuthorizer{cfg.Authorizer, cfg.ResolveResource}, resolver.ResourceResolverFunc(resolveKindPlaceholder)
	policies, err := mutatingpolicystore.NewREST(getter, authorizer, kinds)
	if err != nil {
		return err
	}
	bindings, err := mutatingbindingstore.NewREST(getter, authorizer, &mutatingbindingstore.DefaultPolicyGetter{Getter: policies}, kinds)
	storages["mutatingadmissionpolicies"], storages["mutatingadmissionpolicybindings"] = policies, bindings
	return err
}

// kindPrefix is the prefix of a kind in the place of a resource name. No resource name has this prefix.
const kindPrefix = "kind:"

// resolveKindPlaceholder is the resolver that the stock registries call for the resource of a paramKind. They pass no context, and
// thus no logical cluster, so it returns the kind itself. paramAuthorizer, which they call next with the context,
// resolves it.
func resolveKindPlaceholder(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return kind.GroupVersion().WithResource(kindPrefix + kind.Kind), nil
}

// paramAuthorizer authorizes the author of a policy or binding to read its parameters.
type paramAuthorizer struct {
	authorizer.UnconditionalAuthorizer
	resolveResource func(context.Context, schema.GroupKind) (string, error)
}

// Authorize implements authorizer.UnconditionalAuthorizer. For a kind that the logical cluster does not serve it requires permission
// for all resources of the group, as upstream does.
func (p paramAuthorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if kind, isKind := strings.CutPrefix(attributes.GetResource(), kindPrefix); isKind {
		resource, err := p.resolveResource(ctx, schema.GroupKind{Group: attributes.GetAPIGroup(), Kind: kind})
		if err != nil {
			return authorizer.DecisionDeny, "", fmt.Errorf("finding the resource of the paramKind %q: %w", kind, err)
		}
		if resource == "" {
			resource = "*"
		}
		attributes = attributesWithResource{attributes, resource}
	}
	return p.UnconditionalAuthorizer.Authorize(ctx, attributes)
}

// attributesWithResource are attributes with another resource.
type attributesWithResource struct {
	authorizer.Attributes
	resource string
}

func (a attributesWithResource) GetResource() string { return a.resource }
