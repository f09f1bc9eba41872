package apiindex

import (
	"testing"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

func TestBase62Sha224(t *testing.T) {
	for text, want := range map[string]string{
		"":      "aAkHCkvjglfF66mdhRcVKb0I3FT1lepYlWZNwj",
		"hello": "bPWFAjMdldrWYheSsV0t7VkdTNtgGHBplr6qLF",
	} {
		if got := base62Sha224(text); got != want {
			t.Errorf("base62Sha224(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	export := bindings.ExportKey{Cluster: logicalcluster.MustParseName("abc"), Name: "widgets"}
	key, value := ExportLabel(export)
	if want := base62Sha224("abc:widgets"); key != "internal.apis.kcp.io/export" || value != want {
		t.Errorf("ExportLabel() = %s=%s, want the hash %s", key, value, want)
	}
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"}}
	key, value = ClaimLabel(export, claim)
	if want := base62Sha224(`{"resource":"configmaps","verbs":null}`); key != "claimed.internal.apis.kcp.io/"+base62Sha224("abc:widgets") || value != want {
		t.Errorf("ClaimLabel() = %s=%s, want the hash %s", key, value, want)
	}
	claim.Verbs, claim.DefaultSelector = []string{"*"}, &apisv1alpha2.PermissionClaimSelector{MatchAll: true}
	if _, same := ClaimLabel(export, claim); same != value {
		t.Errorf("verbs and selector change the label from %s to %s", value, same)
	}
	claim.Group, claim.IdentityHash = "example.io", "0a"
	if _, value := ClaimLabel(export, claim); value != base62Sha224(`{"group":"example.io","resource":"configmaps","verbs":null,"identityHash":"0a"}`) {
		t.Errorf("ClaimLabel() with group and identity = %s", value)
	}
	events := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "events.k8s.io", Resource: "events"}}
	if _, value := ClaimLabel(export, events); value != base62Sha224(`{"resource":"events","verbs":null}`) {
		t.Errorf("events of events.k8s.io have a different label: %s", value)
	}
	for _, value := range []string{ReflexiveClaimValue, value} {
		if len(value) < 30 || len(value) > 63 {
			t.Errorf("%q is not a valid label value", value)
		}
	}
}
