package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const defaultServiceAccount = "default"

// serviceAccountController creates the service account "default" in each active namespace.
type serviceAccountController struct {
	cfg        Config
	namespaces *storage.Reader[*core.Namespace]
	accounts   *storage.Reader[*core.ServiceAccount]
}

func newDefaultServiceAccountController(cfg Config) controller.Controller {
	c := &serviceAccountController{
		cfg:        cfg,
		namespaces: storage.NewReader[*core.Namespace](cfg.Registry, namespaces),
		accounts:   storage.NewReader[*core.ServiceAccount](cfg.Registry, serviceAccounts),
	}
	return controller.Controller{
		Name: "default-serviceaccount",
		Sources: []controller.Source{
			{Resource: namespaces, MapFunc: perNamespace(defaultServiceAccount)},
			{Resource: serviceAccounts, MapFunc: onlyNamed(defaultServiceAccount)},
		},
		Reconcile: c.reconcile,
	}
}

func (c *serviceAccountController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	if _, err := c.accounts.Get(ctx, key.Namespace, key.Name); err == nil || !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	namespace, err := c.namespaces.Get(ctx, "", key.Namespace)
	if apierrors.IsNotFound(err) || (err == nil && !isActive(namespace)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := ignoreTerminatingNamespace(c.cfg.Clients.Typed.Create(ctx, account)); err != nil {
		return controller.Result{}, fmt.Errorf("creating service account %q in namespace %q: %w", key.Name, key.Namespace, err)
	}
	return controller.Result{}, nil
}
