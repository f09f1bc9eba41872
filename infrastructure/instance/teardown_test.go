package instance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// remaining is a handler with objects of two instances, one of each Template.
type remaining struct {
	Handler
	gone    bool
	err     error
	deleted []string
}

func (r *remaining) Instances(context.Context) ([]Identity, error) {
	tenant := logicalcluster.MustParseName("tenant")
	return []Identity{{tenant, "cache", "one"}, {tenant, "store", "two"}}, nil
}

func (r *remaining) Delete(_ context.Context, instance Instance) (bool, error) {
	r.deleted = append(r.deleted, instance.Cluster.String()+"/"+instance.Template.Name+"/"+instance.Object.GetName())
	return r.gone, r.err
}

func TestWhatIsLeftGoesWithItsTemplate(t *testing.T) {
	t.Parallel()
	const group = "example.org"
	one, refused := []string{"tenant/cache/one"}, errors.New("refused")
	now := metav1.NewTime(time.Unix(0, 0))
	for name, tc := range map[string]struct {
		meta    metav1.ObjectMeta
		handler remaining
		deleted []string
		left    bool
		err     error
	}{
		"a Template that is deleted":            {meta: metav1.ObjectMeta{DeletionTimestamp: &now}, handler: remaining{gone: true}, deleted: one},
		"what takes its time is waited for":     {meta: metav1.ObjectMeta{DeletionTimestamp: &now}, deleted: one, left: true},
		"errors are returned":                   {meta: metav1.ObjectMeta{DeletionTimestamp: &now}, handler: remaining{err: refused}, deleted: one, err: refused},
		"instances that are abandoned":          {meta: metav1.ObjectMeta{DeletionTimestamp: &now, Annotations: map[string]string{backend.AnnotationAbandon(group): ""}}},
		"another backend may create all again":  {meta: metav1.ObjectMeta{Annotations: map[string]string{backend.AnnotationMigrate(group): ""}}, handler: remaining{gone: true}, deleted: one},
		"another backend must not lose a thing": {left: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := &infrastructurev1alpha1.Template{ObjectMeta: tc.meta}
			template.Name, template.Spec.InstanceCRD.Group = "cache", group
			err := Teardown(t.Context(), &tc.handler, template)
			_, left := errors.AsType[*backend.InstancesLeftError](err)
			if left != tc.left || !left && !errors.Is(err, tc.err) || !slices.Equal(tc.handler.deleted, tc.deleted) {
				t.Errorf("deleted %v, error %v", tc.handler.deleted, err)
			}
		})
	}
}
