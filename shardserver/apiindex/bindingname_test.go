package apiindex

import (
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestDefaultBindingName(t *testing.T) {
	consumer, path := logicalcluster.MustParseName("abc"), logicalcluster.MustParsePath("root:org")
	name := DefaultBindingName(consumer, path, "tenancy.kcp.io")
	if want := "tenancy.kcp.io-" + strings.ToLower(base62Sha224("abc|root:org|tenancy.kcp.io")[:5]); name != want {
		t.Errorf("got %q, want %q", name, want)
	}
	if other := DefaultBindingName(logicalcluster.MustParseName("abd"), path, "tenancy.kcp.io"); other == name {
		t.Errorf("two bindings have the same name: %q", other)
	}
	if long := DefaultBindingName(consumer, path, strings.Repeat("a", 253)); len(long) != 253 {
		t.Errorf("the name of a long export has %d characters", len(long))
	}
}
