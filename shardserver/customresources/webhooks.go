package customresources

import (
	"fmt"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/shardserver/outbound"
)

// conversions is how conversion webhooks are called: as all webhooks of tenants are. That a Service cannot be reached is
// said when a conversion is needed, not before: objects that need none are served, and can be deleted with their
// definition.
type conversions struct{ outbound.Anonymous }

func wrapConversions(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	return conversions{}
}

// ClientConfigForService implements webhook.AuthenticationInfoResolver.
func (c conversions) ClientConfigForService(name, namespace string, port int) (*rest.Config, error) {
	return c.ClientConfigFor(fmt.Sprintf("%s.%s.svc:%d", name, namespace, port))
}

// noServices refuses to find the address of a Service for a conversion webhook. Logical clusters have no Services, and
// a name that were resolved where the shard runs would let a tenant reach into the cluster around it.
type noServices struct{}

// ResolveEndpoint implements webhook.ServiceResolver.
func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %q in namespace %q cannot be reached: a workspace has no services, use clientConfig.url", name, namespace)
}
