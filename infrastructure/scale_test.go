package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testManyTemplates publishes a large catalogue: writes and calls must grow linearly with the number of Templates, not quadratically.
func (e *env) testManyTemplates(t *testing.T) {
	const count = 25
	revision, calls := e.shard.Revision(t), len(e.backend.SetUp())
	var all []*infrastructurev1alpha1.Template
	var creating sync.WaitGroup
	for i := range count {
		all = append(all, newTemplate(fmt.Sprintf("many%d", i), fmt.Sprintf("Many%d", i)))
		creating.Go(func() {
			if err := e.c.Create(t.Context(), all[i].DeepCopy()); err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	for _, template := range all {
		e.ready(t, template.Name)
	}
	exports, templates := 0, 0
	for _, write := range e.shard.Writes(t, revision) {
		switch {
		case strings.HasPrefix(write.Key, "/cache/"):
		case strings.Contains(write.Key, "/apiexports/"):
			exports++
		case strings.Contains(write.Key, "/templates/"):
			templates++
		}
	}
	t.Logf("%d templates: the export was written %d times, templates %d times, the backend was called %d times", count, exports, templates, len(e.backend.SetUp())-calls)
	if exports >= count || templates > 8*count || len(e.backend.SetUp())-calls > 8*count {
		t.Error("this grows faster than the catalogue")
	}
	if got := series(t)["infrastructure_template_condition backend=kro condition=Ready template=many7"]; got != 1 {
		t.Errorf("the metric of a template that is ready is %v", got)
	}
	shardtesting.Eventually(t, "an event of a template", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := e.c.List(ctx, &list, client.InNamespace("default")); err != nil {
			return err
		}
		for i := range list.Items {
			if event := &list.Items[i]; event.Regarding.Name == "many7" && event.Reason == infrastructurev1alpha1.ReasonReady {
				return nil
			}
		}
		return errors.New("there is none")
	})
	for _, template := range all {
		if err := e.c.Delete(t.Context(), template); err != nil {
			t.Fatal(err)
		}
	}
	for _, template := range all {
		e.gone(t, template)
	}
	shardtesting.Eventually(t, "the metrics of templates to be deleted", func(context.Context) error {
		for name := range series(t) {
			if strings.HasPrefix(name, "infrastructure_template_") && strings.Contains(name, "template=many") {
				return errors.New(name)
			}
		}
		return nil
	})
}
