package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// events returns the events of an instance that a tenant sees, by reason.
func (e *instancesEnv) events(ctx context.Context, t *testing.T, tenant, name string) (map[string]corev1.Event, error) {
	t.Helper()
	var list corev1.EventList
	if err := e.inWorkspace(t, tenant).List(ctx, &list, client.InNamespace("default")); err != nil {
		return nil, err
	}
	found := map[string]corev1.Event{}
	for _, event := range list.Items {
		if event.InvolvedObject.Kind == "Redis" && event.InvolvedObject.Name == name {
			found[event.Reason] = event
		}
	}
	return found, nil
}

func (e *instancesEnv) waitEvent(t *testing.T, tenant, name, reason string) corev1.Event {
	t.Helper()
	var event corev1.Event
	shardtesting.Eventually(t, fmt.Sprintf("an event %s of %s", reason, name), func(ctx context.Context) error {
		found, err := e.events(ctx, t, tenant, name)
		if err != nil {
			return err
		}
		var ok bool
		if event, ok = found[reason]; !ok {
			return fmt.Errorf("got %v", found)
		}
		return nil
	})
	return event
}

// testEvents runs after the first tenant has accepted the claims, while the second one has not.
func (e *instancesEnv) testEvents(t *testing.T) {
	e.provision(t, e.second, "silent", "small")
	instance := e.provision(t, e.tenant, "eventful", "small")
	event := e.waitEvent(t, e.tenant, "eventful", "Ready")
	if event.InvolvedObject.UID != instance.GetUID() || event.Count != 1 || event.Labels[group+"/event"] != "true" {
		t.Errorf("the event is %+v", event)
	}
	if err := e.of(e.tenant).inTenant(t, "redis").Delete(t.Context(), "eventful", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitEvent(t, e.tenant, "eventful", "Deleted")
	found, err := e.events(t.Context(), t, e.tenant, "eventful")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"manifest", "configmap", "confidential", "backend"} {
		if text := strings.ToLower(fmt.Sprint(found)); strings.Contains(text, word) {
			t.Errorf("a tenant reads %q in %s", word, text)
		}
	}
	if found, err := e.events(t.Context(), t, e.second, "silent"); err != nil || len(found) > 0 {
		t.Errorf("events of a tenant who has not accepted the claim: %v, %v", found, err)
	}
}

// series returns the values of the metrics of the platform, by name and labels.
func series(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "infrastructure_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() { // sorted by name
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			values[name] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func (e *instancesEnv) testMetrics(t *testing.T) {
	shardtesting.Eventually(t, "the number of instances", func(context.Context) error {
		got := series(t)
		if ready := got["infrastructure_instances backend=manifest phase=Ready template=redis"]; ready != 3 {
			return fmt.Errorf("%v are ready: %v", ready, got)
		}
		return nil
	})
	got := series(t)
	if got["infrastructure_instance_reconcile_duration_seconds backend=manifest result=success template=redis"] == 0 {
		t.Errorf("no reconciliation is counted: %v", got)
	}
	for name := range got {
		for _, tenant := range []string{e.tenant, e.second, "mine", "silent", "cluster"} {
			if strings.Contains(name, tenant) {
				t.Errorf("%q has %s", name, tenant)
			}
		}
	}
}

// testPurge runs after a workspace was purged.
func (e *instancesEnv) testPurge(t *testing.T) {
	if got := series(t); got["infrastructure_purges_total backend=manifest result=success"] < 1 || got["infrastructure_sweeps_total backend=manifest result=success"] < 2 {
		t.Errorf("metrics %v", got)
	}
	shardtesting.Eventually(t, "an event in the workspace of the provider", func(ctx context.Context) error {
		var list corev1.EventList
		if err := e.c.List(ctx, &list); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Reason == "Purged" && event.InvolvedObject.Kind == "APIExport" && strings.Contains(event.Message, e.lost) {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// waitSeriesGone waits until no series has the name of a Template.
func waitSeriesGone(t *testing.T, template string) {
	t.Helper()
	shardtesting.Eventually(t, "the series of "+template+" to be deleted", func(context.Context) error {
		for name := range series(t) {
			if strings.Contains(name, "template="+template) {
				return fmt.Errorf("there is %s", name)
			}
		}
		return nil
	})
}
