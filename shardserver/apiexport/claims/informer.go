package claims

import (
	"context"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/fence"
)

// Run keeps the index up to date until the context ends. It is called once. Logical clusters that move here are included, so that
// the first write to one gets its labels.
func (i *Index) Run(ctx context.Context) { i.informer.Run(fence.WithMover(ctx)) }

func (i *Index) onReplace(_ context.Context, objects []*apisv1alpha2.APIBinding, _ string) error {
	i.reset()
	for _, object := range objects {
		if err := i.update(object); err != nil {
			return err
		}
	}
	i.setSynced()
	return nil
}

func (i *Index) onUpdate(_ context.Context, object *apisv1alpha2.APIBinding) error {
	return i.update(object)
}

func (i *Index) onDelete(_ context.Context, object *apisv1alpha2.APIBinding) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.deleteEntry(logicalcluster.Of(object), object.Name)
	return nil
}

func (i *Index) setSynced() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.synced = true
}

// reset empties the index, which is not synced afterwards.
func (i *Index) reset() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.synced = false
	i.clusters = map[logicalcluster.Name][]bindingClaims{}
	i.sets = map[contentHash]*claimSet{}
}
