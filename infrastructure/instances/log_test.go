package instances

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestLogsNameTheInstance(t *testing.T) {
	var got string
	construct := newLogConstructor(funcr.New(func(_, args string) { got = args }, funcr.Options{}))
	construct(&request{gvr: schema.GroupVersionResource{Resource: "caches"}, cluster: "1a2b", name: "mine"}).Info("failed")
	if want := `"resource"="caches" "cluster"="1a2b" "name"="mine"`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	construct(nil).Info("starting")
	if !strings.Contains(got, `"controller"="instances"`) || strings.Contains(got, "cluster") {
		t.Errorf("got %s", got)
	}
}
