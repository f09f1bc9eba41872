// Package builtin configures the API groups of Kubernetes that every logical cluster serves. It selects and connects
// upstream's registries; logical clusters are added below them, by package storage.
package builtin

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// servedResources are the enabled resources. Subresources follow their resource.
var servedResources = map[schema.GroupVersion][]string{
	corev1.SchemeGroupVersion:           {"namespaces", "configmaps", "secrets", "serviceaccounts", "events", "resourcequotas"},
	eventsv1.SchemeGroupVersion:         {"events"},
	coordinationv1.SchemeGroupVersion:   {"leases"},
	rbacv1.SchemeGroupVersion:           {"roles", "rolebindings", "clusterroles", "clusterrolebindings"},
	authenticationv1.SchemeGroupVersion: {"tokenreviews", "selfsubjectreviews"},
	certificatesv1.SchemeGroupVersion:   {"certificatesigningrequests"},
	admissionregistrationv1.SchemeGroupVersion: {
		"mutatingwebhookconfigurations", "validatingwebhookconfigurations",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
	},
	authorizationv1.SchemeGroupVersion: {"subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"},
}

// NewResourceConfig returns the enabled built-in resources. No version as a whole is enabled, so that resources which
// upstream adds to one are not served.
func NewResourceConfig() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	for version, resources := range servedResources {
		for _, resource := range resources {
			config.EnableResources(version.WithResource(resource))
		}
	}
	return config
}

// Config configures the built-in groups.
type Config struct {
	Resources *serverstorage.ResourceConfig
	EventTTL  time.Duration

	Authenticator authenticator.Request
	APIAudiences  authenticator.Audiences
	Authorizer    authorizer.UnconditionalAuthorizer
	RuleResolver  authorizer.RuleResolver
	// ResolveResource returns the name of the resource of a kind in the context's logical cluster, or "" if it is not
	// served.
	ResolveResource func(context.Context, schema.GroupKind) (string, error)

	TokenIssuer        serviceaccount.TokenGenerator
	TokenMaxExpiration time.Duration
	// ExtendTokens extends injected tokens up to TokenMaxExtension, for clients that do not reload them.
	ExtendTokens      bool
	TokenMaxExtension time.Duration
}

// NewNamedGroups returns the other built-in groups except RBAC, in the order of discovery.
func NewNamedGroups(cfg Config, getter generic.RESTOptionsGetter) ([]*genericapiserver.APIGroupInfo, error) {
	var infos []*genericapiserver.APIGroupInfo
	for _, provider := range []interface {
		GroupName() string
		NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
	}{
		authenticationrest.RESTStorageProvider{Authenticator: cfg.Authenticator, APIAudiences: cfg.APIAudiences},
		authorizationrest.RESTStorageProvider{Authorizer: cfg.Authorizer, RuleResolver: cfg.RuleResolver},
		certificatesrest.RESTStorageProvider{Authorizer: cfg.Authorizer},
		coordinationrest.RESTStorageProvider{},
		eventsrest.RESTStorageProvider{TTL: cfg.EventTTL},
	} {
		info, err := provider.NewRESTStorage(cfg.Resources, getter)
		if err != nil {
			return nil, fmt.Errorf("creating group %s: %w", provider.GroupName(), err)
		}
		if provider.GroupName() == authenticationv1.GroupName {
			info.VersionedResourcesStorageMap[authenticationv1.SchemeGroupVersion.Version]["tokenreviews"] = newTokenReviews(cfg)
		}
		infos = append(infos, &info)
	}
	admissionRegistration, err := NewAdmissionRegistrationGroup(cfg, getter)
	if err != nil {
		return nil, err
	}
	return append(infos, &admissionRegistration), nil
}
