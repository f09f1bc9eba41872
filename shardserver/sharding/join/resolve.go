package join

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// Namespace and Name of the ConfigMap in system:shard whose data are Identities.
const (
	Namespace = metav1.NamespaceDefault
	Name      = "apiexport-identity-cache"
)

// Store is the storage of ConfigMaps. It is used directly because the API is not served yet.
type Store interface {
	rest.Getter
	rest.Creater
	rest.Updater
}

// Source returns the identities of the exports in root.
type Source interface {
	Identities(ctx context.Context) (Identities, error)
}

// Resolve returns the stored identities. If some are missing, it reads them from root, with retries until the context
// ends, and stores them. It calls onWait before the first request and each time the reason for waiting changes. It does
// not retry a *ConflictError.
func Resolve(ctx context.Context, store Store, root Source, onWait func(error)) (Identities, error) {
	retry := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.6, Jitter: 0.2, Steps: 10, Cap: 3 * time.Second}
	onRequest := sync.OnceFunc(func() { onWait(errors.New("reading the identities of the exports from the root shard")) })
	last := ""
	for {
		identities, err := resolve(ctx, store, root, onRequest)
		if _, conflict := err.(*ConflictError); err == nil || conflict {
			return identities, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for the identities of the exports of root: %w", err)
		}
		if err.Error() != last {
			last = err.Error()
			klog.InfoS("Waiting for the identities of the exports of root", "reason", last)
			onWait(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.Step()):
		}
	}
}

// resolve calls onRequest before it sends a request to root.
func resolve(ctx context.Context, store Store, root Source, onRequest func()) (Identities, error) {
	inShard := request.WithNamespace(logicalcluster.With(ctx, logicalcluster.Shard), Namespace)
	stored, err := read(inShard, store)
	if err != nil {
		return nil, err
	}
	identities := Identities{}
	if stored != nil {
		identities = stored.Data
	}
	if len(identities.missing()) == 0 {
		return identities, nil
	}
	onRequest()
	remote, err := root.Identities(ctx)
	if err != nil {
		return nil, err
	}
	merged, err := Merge(identities, remote)
	if err != nil {
		return nil, err
	}
	return merged, write(inShard, store, stored, merged)
}

func read(ctx context.Context, store Store) (*core.ConfigMap, error) {
	obj, err := store.Get(ctx, Name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the identities of the exports of root from config map %s/%s in %s: %w", Namespace, Name, logicalcluster.Shard, err)
	}
	return obj.(*core.ConfigMap), nil
}

// write stores the identities. If another replica has stored them concurrently it returns a conflict, and the retry
// reads those.
func write(ctx context.Context, store Store, stored *core.ConfigMap, identities Identities) error {
	var err error
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	if stored == nil {
		ctx = registry.WithRequestInfo(ctx, "create", resource, "")
		desired := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}, Data: identities}
		_, err = store.Create(ctx, desired, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	} else {
		ctx = registry.WithRequestInfo(ctx, "update", resource, "")
		desired := stored.DeepCopy()
		desired.Data = maps.Clone(identities)
		_, _, err = store.Update(ctx, Name, rest.DefaultUpdatedObjectInfo(desired), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("storing the identities of the exports of root: %w", err)
	}
	return nil
}
