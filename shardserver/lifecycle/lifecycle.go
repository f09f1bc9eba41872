// Package lifecycle keeps what every logical cluster has of plain Kubernetes in order: it empties namespaces that are
// being deleted, gives active ones their default service account, the root CA config map and the tokens of service account
// Secrets, and aggregates ClusterRoles. Packages below collect garbage and count what quotas limit. It works in all logical clusters, system ones included, and knows nothing of workspaces.
package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/follow"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	namespaces      = schema.GroupResource{Resource: "namespaces"}
	serviceAccounts = schema.GroupResource{Resource: "serviceaccounts"}
	configMaps      = schema.GroupResource{Resource: "configmaps"}
	secrets         = schema.GroupResource{Resource: "secrets"}
)

// Config is what the controllers need.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	// Keys tells what storage has.
	Keys content.Keys
	// RootCA returns the PEM bundle by which clients in a logical cluster trust the server. Without the function, or
	// while it returns nothing, no config map is published and tokens are filled without a CA. It is asked each time;
	// a changed bundle reaches existing config maps with their next event.
	RootCA func() []byte
	// Tokens signs the tokens of service account Secrets, with the logical cluster of the context. Without it such
	// Secrets stay as they are.
	Tokens serviceaccount.TokenGenerator
	// InFlight are the requests of this process that quotas were charged for.
	InFlight *quota.InFlight
	// Observers makes what else wants to be told of every object; may be empty.
	Observers []func() Observer
}

// Observer is told of every object that is stored, and runs as long as it is.
type Observer interface {
	follow.Listener
	Run(context.Context)
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	if cfg.RootCA == nil {
		cfg.RootCA = func() []byte { return nil }
	}
	controllers := []controller.Controller{
		newNamespaceController(cfg),
		newDefaultServiceAccountController(cfg),
		newRootCAController(cfg),
		newAggregationController(cfg),
	}
	if cfg.Tokens != nil {
		controllers = append(controllers, newTokenController(cfg))
	}
	return controllers
}

// perNamespace maps an event of a namespace to the key of what the controller keeps in it, whose name is fixed.
func perNamespace(name string) func(watch.Event) []controller.Key {
	return func(event watch.Event) []controller.Key {
		namespace, ok := event.Object.(*core.Namespace)
		if !ok || event.Type == watch.Deleted || !active(namespace) {
			return nil
		}
		return []controller.Key{{Cluster: logicalcluster.Of(namespace), Namespace: namespace.Name, Name: name}}
	}
}

// onlyNamed narrows events of a resource to the objects of one name.
func onlyNamed(name string) func(watch.Event) []controller.Key {
	return func(event watch.Event) []controller.Key {
		for _, key := range controller.ObjectKey(event) {
			if key.Name == name {
				return []controller.Key{key}
			}
		}
		return nil
	}
}

func active(namespace *core.Namespace) bool {
	return namespace.DeletionTimestamp == nil && namespace.Status.Phase != core.NamespaceTerminating
}

// ignoreGoingNamespace drops the errors of writing into a namespace that has been, or is being, deleted meanwhile, and
// of creating what somebody else created meanwhile.
func ignoreGoingNamespace(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
