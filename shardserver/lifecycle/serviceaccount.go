package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

const defaultServiceAccountName = "default"

// defaultServiceAccount creates the service account "default" in each active namespace.
type defaultServiceAccount struct {
	cfg      Config
	accounts *storage.Reader[*core.ServiceAccount]
}

// missing implements namespaceDefault.
func (d *defaultServiceAccount) missing(ctx context.Context, namespace, resourceVersion string) (func(context.Context) error, error) {
	if _, err := d.accounts.GetNotOlderThan(ctx, namespace, defaultServiceAccountName, resourceVersion); err == nil || !apierrors.IsNotFound(err) {
		return nil, err
	}
	return func(ctx context.Context) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultServiceAccountName}}
		if err := ignoreTerminatingNamespace(d.cfg.Clients.Typed.Create(ctx, account)); err != nil {
			return fmt.Errorf("creating service account %q in namespace %q: %w", account.Name, namespace, err)
		}
		return nil
	}, nil
}
