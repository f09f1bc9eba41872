package builtin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	quotastore "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"

	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// quotaREST is the storage of resource quotas with an atomic update of the status, with which admission charges requests.
type quotaREST struct {
	*quotastore.REST
	status *quotastore.StatusREST
}

// ChargeStatus updates the status of a quota in the context's logical cluster and namespace. The function receives the
// stored object, in the internal version, and returns the changed one, or an error, which ChargeStatus returns. It is
// called again after a conflict.
func (q quotaREST) ChargeStatus(ctx context.Context, name string, change func(stored runtime.Object) (runtime.Object, error)) error {
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, stored runtime.Object) (runtime.Object, error) {
		return change(stored)
	})
	ctx = registry.WithRequestInfo(ctx, "update", corev1.SchemeGroupVersion.WithResource("resourcequotas"), "status")
	_, _, err := q.status.Update(ctx, name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}

func addResourceQuotas(_ Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	store, status, err := quotastore.NewREST(getter)
	if err != nil {
		return err
	}
	storages["resourcequotas"], storages["resourcequotas/status"] = quotaREST{store, status}, status
	return nil
}
