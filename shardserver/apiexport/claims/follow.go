package claims

import (
	"context"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Run follows all bindings until the context ends. It is called once.
func (i *Index) Run(ctx context.Context) { i.following.Run(ctx) }

// follower takes into an index what a watch brings.
type follower struct{ *Index }

// Begin drops everything, since what is deleted while nobody watches is told by nobody.
func (f follower) Begin() { f.forget() }

// End is explained at Begin.
func (f follower) End() { f.forget() }

func (f follower) Take(_ context.Context, object *apisv1alpha2.APIBinding, deleted bool) error {
	if deleted {
		f.remove(object)
		return nil
	}
	return f.update(object)
}

func (f follower) Complete(string) { f.settle() }

func (follower) Saw(string) {}

func (i *Index) remove(object *apisv1alpha2.APIBinding) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drop(logicalcluster.Of(object), object.Name)
}

func (i *Index) settle() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.synced = true
}

// forget has the index know nothing, and say so.
func (i *Index) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.synced = false
	i.clusters = map[logicalcluster.Name][]accepting{}
	i.sets = map[content]*set{}
}
