package builtin

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	quotastore "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
)

// quotas is the storage of resource quotas that also lets admission charge them: a request that is counted changes the
// status in one step in storage, whoever else does so at the same time.
type quotas struct {
	*quotastore.REST
	status *quotastore.StatusREST
}

// ChargeStatus changes the status of a quota of the context's logical cluster and namespace. The function gets the
// stored object, in the internal version, and returns it changed, or an error that refuses the change and is returned;
// it is called again when somebody else was faster.
func (q quotas) ChargeStatus(ctx context.Context, name string, change func(stored runtime.Object) (runtime.Object, error)) error {
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, stored runtime.Object) (runtime.Object, error) {
		return change(stored)
	})
	_, _, err := q.status.Update(ctx, name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}

func addResourceQuotas(_ Config, getter generic.RESTOptionsGetter, storages map[string]rest.Storage) error {
	store, status, err := quotastore.NewREST(getter)
	if err != nil {
		return err
	}
	storages["resourcequotas"], storages["resourcequotas/status"] = quotas{store, status}, status
	return nil
}
