package runtimecluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestEventsTellThatAQuotaIsExceeded(t *testing.T) {
	tenant, err := logicalcluster.ParseName("tenant")
	if err != nil {
		t.Fatal(err)
	}
	set, now := Set{Tenant: tenant, Template: "redis", Instance: "mine"}, time.Now()
	const message = `create Pod redis-mine-0 failed: pods "redis-mine-0" is forbidden: exceeded quota: infrastructure-defaults`
	for name, test := range map[string]struct {
		kind, object, message string
		age                   time.Duration
		want                  bool
	}{
		"of an object of the instance":                   {"StatefulSet", "redis-mine", message, time.Minute, true},
		"of what a controller has made of it":            {"ReplicaSet", "redis-mine-7d4b9cf6bf", message, time.Minute, true},
		"of another instance":                            {"StatefulSet", "redis-other", message, time.Minute, false},
		"of another instance whose name begins alike":    {"StatefulSet", "redis-mine-2", message, time.Minute, false},
		"that is old":                                    {"StatefulSet", "redis-mine", message, time.Hour, false},
		"about something else that could not be created": {"StatefulSet", "redis-mine", "forbidden by a policy", time.Minute, false},
	} {
		inventory := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: inventoryName(set)},
			Data:       map[string]string{inventoryKey: `[{"group":"apps","version":"v1","kind":"StatefulSet","name":"redis-mine"}]`},
		}
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "event"}, InvolvedObject: corev1.ObjectReference{Kind: test.kind, Name: test.object},
			Reason: "FailedCreate", Message: test.message, LastTimestamp: metav1.NewTime(now.Add(-test.age)),
		}
		c := &Cluster{Group: "example.org", Backend: "test", Client: fake.NewClientBuilder().WithObjects(inventory, event).
			WithIndex(&corev1.Event{}, "reason", func(object client.Object) []string { return []string{object.(*corev1.Event).Reason} }).Build()}
		if got, err := c.isQuotaExceeded(t.Context(), set, now); got != test.want || err != nil {
			t.Errorf("an event %s: got %v, %v", name, got, err)
		}
	}
}
