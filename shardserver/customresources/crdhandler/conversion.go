package crdhandler

import (
	"fmt"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/shardserver/webhookclient"
)

// conversionClients configures the clients of conversion webhooks. A webhook at a Service fails when a conversion is
// needed, not when the definition is compiled: objects that need no conversion are served, and can be deleted.
type conversionClients struct {
	webhookclient.AnonymousResolver
}

func wrapConversionClients(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	return conversionClients{}
}

// ClientConfigForService implements webhook.AuthenticationInfoResolver.
func (c conversionClients) ClientConfigForService(name, namespace string, port int) (*rest.Config, error) {
	return c.ClientConfigFor(fmt.Sprintf("%s.%s.svc:%d", name, namespace, port))
}

// noServiceResolver fails to resolve the Service of a conversion webhook. Logical clusters have no Services, and a name that
// is resolved where the shard runs would let a tenant reach into that cluster.
type noServiceResolver struct{}

// ResolveEndpoint implements webhook.ServiceResolver.
func (noServiceResolver) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %q in namespace %q cannot be reached: a workspace has no services, use clientConfig.url", name, namespace)
}
