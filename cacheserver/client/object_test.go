package client

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
)

// The long s and the Kelvin sign equal s and k when case is folded, and sort after them in JSON.
const lookalikes = `{
	"apiVersion": "sharding.kcp.io/v1alpha1", "kind": "ShardReport",
	"metadata": {
		"annotations": {"kcp.io/cluster": "abc", "kcp.io/shard": "mallory"},
		"annotation\u017f": {"kcp.io/cluster": "root", "kcp.io/shard": "root"},
		"name": "mallory", "resourceVersion": "7", "re\u017fourceVersion": "1", "Name": "root"
	},
	"spec": {"complete": false}, "\u017fpec": {"complete": true}
}`

func TestFieldNamesAreCaseSensitive(t *testing.T) {
	object, err := parseObject(json.RawMessage(lookalikes))
	if err != nil {
		t.Fatal(err)
	}
	if got := object.String(); got != "mallory|abc|mallory" {
		t.Errorf("the key of the object is %s", got)
	}
	if object.Meta.ResourceVersion != "7" {
		t.Errorf("the resource version is %q", object.Meta.ResourceVersion)
	}
	var report shardingv1alpha1.ShardReport
	if err := object.Decode(&report); err != nil {
		t.Fatal(err)
	}
	if report.Annotations[ShardAnnotation] != "mallory" || report.Spec.Complete {
		t.Errorf("decoded to %+v", report)
	}
	var completeness Completeness
	completeness.OnEvent(watch.Added, object, Position{Incarnation: "i", ResourceVersion: "7"})
	if completeness.IsComplete("mallory") {
		t.Error("completeness is read from a field with another name")
	}
}
