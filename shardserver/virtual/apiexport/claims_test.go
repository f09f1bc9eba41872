package apiexport_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	configMapsPath    = "/api/v1/namespaces/default/configmaps"
	allConfigMapsPath = "/api/v1/configmaps"
)

// update updates a binding or an export until it succeeds.
func update[T client.Object](s *env, cluster, name string, object T, mutate func(T)) {
	s.Helper()
	ctx := shardtesting.In(s.Context(), cluster)
	shardtesting.Eventually(s.T, "changing "+name, func(context.Context) error {
		if err := s.masters.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		mutate(object)
		return s.masters.Update(ctx, object)
	})
}

func TestClaimedResources(t *testing.T) {
	secrets := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "secrets"}, Verbs: []string{"*"}}
	everything := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"}}
	s := newEnv(t, everything, secrets)

	t.Run("a claim that is not accepted gives no access", func(t *testing.T) {
		s := s.withT(t)
		cluster := s.newConsumer("reluctant")
		s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+configMapsPath, newConfigMapJSON("private", ""))
		for _, path := range []string{configMapsPath, configMapsPath + "/private", allConfigMapsPath, "/api/v1/secrets"} {
			s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, path), "")
		}
		s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, s.virtualPath(cluster, configMapsPath), newConfigMapJSON("x", ""))
		if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allConfigMapsPath), "")); found[cluster+"/private"] {
			t.Errorf("listed objects are %v", found)
		}
		// system:masters only gets claimed objects, too.
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(cluster, configMapsPath+"/private"), "")
	})
	t.Run("an accepted claim allows the verbs of both sides", func(t *testing.T) {
		s := s.withT(t)
		reading := acceptClaim(everything)
		reading.Verbs = []string{"get", "list", "watch", "create"}
		// The verbs are the intersection of both sides; "*" of one side only does not count (contract).
		cluster := s.newConsumer("reading", reading)
		s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath), "")
		update(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
			e.Spec.PermissionClaims[0].Verbs = []string{"get", "list", "watch", "create", "delete"}
		})
		s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath), "")
		s.eventuallyStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, configMapsPath), newConfigMapJSON("made", ""))
		s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath+"/made"), "")
		s.expectStatus(http.StatusForbidden, "provider", http.MethodDelete, s.virtualPath(cluster, configMapsPath+"/made"), "")
		s.expectStatus(http.StatusForbidden, "provider", http.MethodPatch, s.virtualPath(cluster, configMapsPath+"/made"), `{"data":{"x":"y"}}`)
		s.expectStatus(http.StatusForbidden, "provider", http.MethodDelete, s.virtualPath(cluster, configMapsPath), "")
		s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, "/api/v1/secrets"), "")
		shardtesting.Eventually(t, "the list over all consumers contains it", func(context.Context) error {
			if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allConfigMapsPath), "")); !found[cluster+"/made"] {
				return fmt.Errorf("listed objects are %v", found)
			}
			return nil
		})
		update(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims[0].Verbs = []string{"*"} })
	})
	t.Run("a patch creates only with an accepted claim for create", func(t *testing.T) {
		s := s.withT(t)
		update(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
			e.Spec.PermissionClaims[0].Verbs = []string{"get", "patch", "update"}
		})
		patching := acceptClaim(everything)
		patching.Verbs = []string{"get", "patch", "update"}
		cluster := s.newConsumer("patching", patching)
		s.eventuallyStatus(http.StatusNotFound, "provider", http.MethodPatch, s.virtualPath(cluster, configMapsPath+"/new"), `{"data":{"x":"y"}}`)
		s.expectStatus(http.StatusForbidden, "provider", http.MethodPatch, s.virtualPath(cluster, configMapsPath+"/new?fieldManager=x"), newConfigMapJSON("new", ""), "Content-Type", "application/apply-patch+yaml")
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, "/clusters/"+cluster+configMapsPath+"/new", "")
		update(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims[0].Verbs = []string{"*"} })
	})
	t.Run("a selector restricts reads and writes", func(t *testing.T) {
		s := s.withT(t)
		selecting := acceptClaim(everything)
		selecting.Selector = apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "provider"}}}
		cluster := s.newConsumer("selecting", selecting)
		s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+configMapsPath, newConfigMapJSON("private", ""))
		s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+configMapsPath, newConfigMapJSON("given", `,"labels":{"for":"provider"}`))
		s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath+"/given"), "")
		s.expectStatus(http.StatusNotFound, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath+"/private"), "")
		if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath), "")); len(found) != 1 || !found[cluster+"/given"] {
			t.Errorf("listed objects are %v", found)
		}
		body := s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, configMapsPath), newConfigMapJSON("made", ""))
		if !strings.Contains(body, `"for":"provider"`) {
			t.Errorf("the label is missing in %s", body)
		}
		s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath+"/made"), "")
		body = s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, s.virtualPath(cluster, configMapsPath), newConfigMapJSON("other", `,"labels":{"for":"other"}`))
		if !strings.Contains(body, "protected label for must have value provider") {
			t.Error(body)
		}
		s.expectStatus(http.StatusForbidden, "provider", http.MethodPatch, s.virtualPath(cluster, configMapsPath+"/given"), `{"metadata":{"labels":{"for":"other"}}}`)
		s.expectStatus(http.StatusOK, "provider", http.MethodPatch, s.virtualPath(cluster, configMapsPath+"/given"), `{"metadata":{"labels":{"for":null}},"data":{"x":"y"}}`)
		for _, method := range []string{http.MethodPatch, http.MethodDelete} {
			body := s.expectStatus(http.StatusForbidden, "provider", method, s.virtualPath(cluster, configMapsPath+"/private"), `{}`)
			if !strings.Contains(body, "object does not match required labels") {
				t.Error(body)
			}
		}
		s.expectStatus(http.StatusForbidden, "provider", http.MethodPut, s.virtualPath(cluster, configMapsPath+"/private"), newConfigMapJSON("private", `,"labels":{"for":"provider"}`))
		s.expectStatus(http.StatusOK, "provider", http.MethodDelete, s.virtualPath(cluster, configMapsPath), "")
		s.expectStatus(http.StatusOK, "masters", http.MethodGet, "/clusters/"+cluster+configMapsPath+"/private", "")
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, "/clusters/"+cluster+configMapsPath+"/given", "")
	})
	t.Run("tokens of service accounts are a subresource with a claim of its own", func(t *testing.T) { testTokens(t, s.withT(t)) })
	t.Run("custom subresources are not served without the feature gate", func(t *testing.T) { testCustomSubresourceWithoutGate(t, s.withT(t)) })
	t.Run("bindings to the export are visible without a claim, and no others", func(t *testing.T) {
		s := s.withT(t)
		const bindings = "/apis/apis.kcp.io/v1alpha2/apibindings"
		cluster := s.newConsumer("watched")
		s.createExport(s.provider, "gadgets")
		s.bind(cluster, s.provider, "gadgets")
		for _, target := range []string{cluster, "*"} {
			found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(target, bindings), ""))
			if !found[cluster+"/widgets"] || found[cluster+"/gadgets"] {
				t.Errorf("listed objects are %v", found)
			}
		}
		s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, bindings+"/widgets"), "")
		s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, strings.Replace(bindings, "v1alpha2", "v1alpha1", 1)+"/widgets"), "")
		s.expectStatus(http.StatusNotFound, "provider", http.MethodGet, s.virtualPath(cluster, bindings+"/gadgets"), "")
		s.expectStatus(http.StatusNotFound, "provider", http.MethodGet, s.virtualPath(cluster, bindings+"/widgets/status"), "")
		s.expectStatus(http.StatusForbidden, "provider", http.MethodDelete, s.virtualPath(cluster, bindings+"/widgets"), "")
		s.expectStatus(http.StatusMethodNotAllowed, "masters", http.MethodDelete, s.virtualPath(cluster, bindings+"/widgets"), "")
		s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, s.virtualPath(cluster, bindings), `{}`)
	})
}

func TestClaimsOnResourcesOfOtherExports(t *testing.T) {
	s := newEnv(t)
	owner := s.shard.NewWorkspace(t, "root", "owner").Spec.Cluster
	identity := s.createExport(owner, "gizmos")
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: "gizmos"}, IdentityHash: identity, Verbs: []string{"*"}}
	unknown := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: "unknowns"}, IdentityHash: strings.Repeat("0", 64), Verbs: []string{"*"}}
	update(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
		e.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{claim, unknown}
	})
	gizmos := "/apis/" + group + "/v1/namespaces/default/gizmos"
	allGizmos := "/apis/" + group + "/v1/gizmos"
	gizmo := strings.NewReplacer("Widget", "Gizmo").Replace

	// The claimed resource is not bound yet: there are no objects.
	for accept, body := range map[string]string{
		"application/json": `"kind":"GizmoList"`,
		"application/json;as=Table;v=v1;g=meta.k8s.io":                     `"kind":"Table"`,
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io": `"kind":"PartialObjectMetadataList"`,
	} {
		if got := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allGizmos), "", "Accept", accept); !strings.Contains(got, body) || !strings.Contains(got, `"resourceVersion":"`) {
			t.Errorf("accepting %s: %s", accept, got)
		}
	}
	s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath("*", "/apis/"+group+"/v1/unknowns"), "")

	waiting := s.watch("provider", s.virtualPath("*", allGizmos+"?watch=1"))
	cluster := s.newConsumer("both", acceptClaim(claim))
	s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, allGizmos), "") // accepted, but not bound
	s.bind(cluster, owner, "gizmos")
	s.eventuallyStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, gizmos), gizmo(s.newWidgetJSON("made", "")))
	if event, err := waiting.nextEvent(); err == nil && event != "ADDED made" { // it ends if it was started before the storage existed
		t.Errorf("the watch returned %q", event)
	}
	s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, gizmos+"/made"), "")
	if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allGizmos), "")); !found[cluster+"/made"] {
		t.Errorf("listed objects are %v", found)
	}

	// The owner permits no user, then the provider.
	update(s, owner, "gizmos", &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
		e.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
	})
	for _, target := range []string{cluster, "*"} {
		s.eventuallyStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(target, allGizmos), "")
	}
	s.expectStatus(http.StatusOK, "masters", http.MethodGet, s.virtualPath("*", allGizmos), "")
	s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+owner+"/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"max"},"rules":[{"verbs":["get","list"],"apiGroups":["`+group+`"],"resources":["gizmos"]}]}`)
	s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+owner+"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"max"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"max"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"apis.kcp.io:binding:provider"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"apis.kcp.io:binding:user"}]}`)
	for _, caller := range []string{"provider", "user"} {
		for _, target := range []string{cluster, "*"} {
			s.eventuallyStatus(http.StatusOK, caller, http.MethodGet, s.virtualPath(target, allGizmos), "")
		}
		s.expectStatus(http.StatusOK, caller, http.MethodGet, s.virtualPath(cluster, gizmos+"/made"), "")
		s.expectStatus(http.StatusForbidden, caller, http.MethodDelete, s.virtualPath(cluster, gizmos+"/made"), "")
	}

	t.Run("a resource of the same name with another identity", func(t *testing.T) {
		s := s.withT(t)
		other := s.shard.NewWorkspace(t, "root", "pretender").Spec.Cluster
		s.createExport(other, "gizmos")
		cluster := s.newConsumer("mistaken", acceptClaim(claim))
		s.bind(cluster, other, "gizmos")
		s.eventuallyStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+gizmos, gizmo(s.newWidgetJSON("theirs", "")))
		s.expectStatus(http.StatusNotFound, "provider", http.MethodGet, s.virtualPath(cluster, gizmos+"/theirs"), "")
		for _, target := range []string{cluster, "*"} {
			if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(target, allGizmos), "")); found[cluster+"/theirs"] {
				t.Errorf("listed objects are %v", found)
			}
		}
	})
}

func TestWatchEndsWhenAccessIsRevoked(t *testing.T) {
	s := newEnv(t, configMapsClaim)
	cluster := s.newConsumer("one", acceptClaim(configMapsClaim))
	neighbour := s.newConsumer("neighbour", acceptClaim(configMapsClaim))
	s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath), "")
	own, claimed, neighbourWatch := s.watch("provider", s.virtualPath(cluster, allWidgetsPath+"?watch=1")), s.watch("provider", s.virtualPath(cluster, allConfigMapsPath+"?watch=1")), s.watch("provider", s.virtualPath(neighbour, allConfigMapsPath+"?watch=1"))

	update(s, cluster, s.export, &apisv1alpha2.APIBinding{}, func(b *apisv1alpha2.APIBinding) { b.Spec.PermissionClaims[0].State = apisv1alpha2.ClaimRejected })
	claimed.waitForEnd()
	s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, configMapsPath), "")
	s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(cluster, widgetsPath), s.newWidgetJSON("still", ""))
	own.waitForEvent(t, "ADDED still")
	s.expectStatus(http.StatusOK, "provider", http.MethodDelete, s.virtualPath(cluster, widgetsPath+"/still"), "")
	if err := s.masters.Delete(shardtesting.In(t.Context(), cluster), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: s.export}}); err != nil {
		t.Fatal(err)
	}
	own.waitForEnd()
	s.eventuallyStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, allWidgetsPath), "")

	wildcard := s.watch("provider", s.virtualPath("*", allConfigMapsPath+"?watch=1"))
	s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(neighbour, configMapsPath), newConfigMapJSON("still", ""))
	neighbourWatch.waitForEvent(t, "ADDED still")
	update(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims = nil })
	neighbourWatch.waitForEnd()
	wildcard.waitForEnd()
	s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath("*", allConfigMapsPath), "")
}
