// Package lifecycle has the controllers of kube-controller-manager that every logical cluster needs: they empty
// terminating namespaces, create the default service account and the root CA config map in active ones, fill service
// account token Secrets and aggregate ClusterRoles. The garbage collector and the quota controller are packages below.
//
// The controllers work in all logical clusters, system ones included. Nothing here depends on workspaces.
package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
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

// Config holds the dependencies of the controllers.
type Config struct {
	Registry *storage.Registry
	// Clients are loopback clients.
	Clients *loopback.Clients
	// Keys counts keys in etcd.
	Keys content.KeyCounter
	// RootCA returns the PEM bundle with which clients in a logical cluster verify the server. If it is nil or returns
	// nothing, no config map is published and token Secrets get no CA. A changed bundle is written to an existing config
	// map at its next event.
	RootCA func() []byte
	// Tokens signs the tokens of service account Secrets for the logical cluster of the context. If it is nil, such
	// Secrets are ignored.
	Tokens serviceaccount.TokenGenerator
	// InFlight are the requests of this process that are charged to quotas.
	InFlight *quota.InFlight
	// Observers create additional observers of all stored objects.
	Observers []func() Observer
}

func (c Config) rootCA() []byte {
	if c.RootCA == nil {
		return nil
	}
	return c.RootCA()
}

// Observer receives the events of all stored objects while it runs.
type Observer interface {
	// EventHandler returns the handler of one storage.
	EventHandler(*storage.Resource) informer.EventHandler[metav1.Object]
	Run(context.Context)
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	controllers := []controller.Controller{
		newNamespaceController(cfg),
		newNamespaceDefaultsController(cfg),
		newAggregationController(cfg),
	}
	if cfg.Tokens != nil {
		controllers = append(controllers, newTokenController(cfg))
	}
	return controllers
}

func isActive(namespace *core.Namespace) bool {
	return namespace.DeletionTimestamp == nil && namespace.Status.Phase != core.NamespaceTerminating
}

// ignoreTerminatingNamespace drops the errors of writing to a namespace that is deleted concurrently, and of creating
// an object that was created concurrently.
func ignoreTerminatingNamespace(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
