package installation_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/atoll-dev/atoll/test/installation"
)

func TestTenantAccessThroughProxy(t *testing.T) {
	bin := t.TempDir()
	if err := installation.Build(t.Context(), "../..", bin); err != nil {
		t.Fatal(err)
	}
	i := installation.Start(t, bin)
	c, err := kubernetes.NewForConfig(i.NewWorkspace(t, "one", "alice"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
