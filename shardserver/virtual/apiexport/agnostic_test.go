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
	policiesPath   = "/services/admin/apis/admin.kcp.io/v1alpha1/permissionclaimpolicies"
	gadgetsPath    = "/apis/shared.dev/v1/namespaces/default/gadgets"
	allGadgetsPath = "/apis/shared.dev/v1/gadgets"
)

func newPolicyJSON(name, claims, providers string) string {
	return `{"apiVersion":"admin.kcp.io/v1alpha1","kind":"PermissionClaimPolicy","metadata":{"name":"` + name + `"},"spec":{"claims":` + claims + `,"providers":` + providers + `}}`
}

func newGadgetJSON(name string) string {
	return `{"apiVersion":"shared.dev/v1","kind":"Gadget","metadata":{"name":"` + name + `"},"spec":{"size":1}}`
}

// newGadgetExport is an export of gadgets of a schema that exists.
func newGadgetExport(claims ...apisv1alpha2.PermissionClaim) *apisv1alpha2.APIExport {
	return &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "gadgets"}, Spec: apisv1alpha2.APIExportSpec{
		Resources:        []apisv1alpha2.ResourceSchema{{Name: "gadgets", Group: "shared.dev", Schema: "v1.gadgets.shared.dev", Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}},
		PermissionClaims: claims,
	}}
}

// producer creates a workspace that exports gadgets.
func (e *env) producer(name string) string {
	e.Helper()
	cluster := e.shard.NewWorkspace(e.T, "root", name).Spec.Cluster
	ctx := shardtesting.In(e.Context(), cluster)
	e.create(ctx, newSchema("v1", "gadgets", "shared.dev"))
	export := newGadgetExport()
	e.create(ctx, export)
	shardtesting.Eventually(e.T, "the export of "+name+" has an identity", func(context.Context) error {
		if err := e.masters.Get(ctx, client.ObjectKeyFromObject(export), export); err != nil {
			return err
		}
		if export.Status.IdentityHash == "" {
			return fmt.Errorf("status %+v", export.Status)
		}
		return nil
	})
	return cluster
}

// One claim without an identity gives access to the resources that consumers have bound of several producers.
func TestClaimsWithoutIdentity(t *testing.T) {
	s := newEnv(t)
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "shared.dev", Resource: "gadgets"}, Verbs: []string{"*"}}
	ctx := shardtesting.In(t.Context(), s.provider)
	addClaim := func(claim apisv1alpha2.PermissionClaim) error {
		export := &apisv1alpha2.APIExport{}
		if err := s.masters.Get(ctx, client.ObjectKey{Name: s.export}, export); err != nil {
			return err
		}
		export.Spec.PermissionClaims = append(export.Spec.PermissionClaims, claim)
		return s.masters.Update(ctx, export)
	}
	if err := addClaim(claim); err == nil || !strings.Contains(err.Error(), "identityHash is required") {
		t.Fatalf("without a policy: %v", err)
	}
	for what, policy := range map[string]string{
		"no claims":        newPolicyJSON("bad", `[]`, `[]`),
		"no groups":        newPolicyJSON("bad", `[{"claimer":"example.com","groups":[]}]`, `[]`),
		"a bad claimer":    newPolicyJSON("bad", `[{"claimer":"*","groups":["a"]}]`, `[]`),
		"the same claimer": newPolicyJSON("bad", `[{"claimer":"a","groups":["a"]},{"claimer":"a","groups":["b"]}]`, `[]`),
		"a bad kind":       newPolicyJSON("bad", `[{"claimer":"a","groups":["a"]}]`, `[{"kind":"ServiceAccount","name":"x"}]`),
	} {
		if status, body := s.do("masters", http.MethodPost, policiesPath, policy); status != http.StatusUnprocessableEntity || !strings.Contains(body, "spec.") {
			t.Errorf("%s: %d: %s", what, status, body)
		}
	}
	s.expectStatus(http.StatusForbidden, "provider", http.MethodPost, policiesPath, newPolicyJSON("own", `[{"claimer":"example.com","groups":["shared.dev"]}]`, `[]`))
	s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, "/clusters/root/apis/admin.kcp.io/v1alpha1/permissionclaimpolicies", "")
	s.expectStatus(http.StatusCreated, "masters", http.MethodPost, policiesPath, newPolicyJSON("shared", `[{"claimer":"example.com","groups":["shared.dev"]}]`, `[{"kind":"Group","name":"system:masters"}]`))
	shardtesting.Eventually(t, "the claim is allowed", func(context.Context) error { return addClaim(claim) })
	uncovered := claim
	uncovered.Group = "other.dev"
	if err := addClaim(uncovered); err == nil || !strings.Contains(err.Error(), "identityHash is required") {
		t.Errorf("a group that the policy does not name: %v", err)
	}
	first, second := s.producer("first"), s.producer("second")

	t.Run("a reserved group", func(t *testing.T) {
		member := s.withT(t).shard.Masters(t)
		member.Impersonate.UserName, member.Impersonate.Groups = "alice", []string{"system:kcp:admin", "system:authenticated"}
		own := s.shard.NewWorkspace(t, "root", "squatter").Spec.Cluster
		export := newGadgetExport()
		err := s.shard.Client(t, member).Create(shardtesting.In(t.Context(), own), export)
		if err == nil || !strings.Contains(err.Error(), `is reserved by PermissionClaimPolicy "shared"`) {
			t.Errorf("got %v", err)
		}
	})

	// Both consumers accept one claim, and bind the gadgets of different producers.
	names := []string{"one", "two"}
	clusters := map[string]string{}
	for _, name := range names {
		clusters[name] = s.newConsumer(name, acceptClaim(claim))
		s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(clusters[name], gadgetsPath), "")
	}
	s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath("*", allGadgetsPath), "")
	if found := s.parseList(s.expectStatus(http.StatusOK, "masters", http.MethodGet, s.virtualPath("*", allGadgetsPath), "")); len(found) != 0 {
		t.Errorf("nothing is bound, and the list is %v", found)
	}
	waiting := s.watch("masters", s.virtualPath("*", allGadgetsPath+"?watch=true"))
	s.bind(clusters["one"], first, "gadgets")
	waiting.waitForEnd()
	s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+clusters["one"]+gadgetsPath, newGadgetJSON("of-one"))
	s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(clusters["one"], gadgetsPath+"/of-one"), "")
	alone := s.watch("provider", s.virtualPath("*", allGadgetsPath+"?watch=true"))
	alone.waitForEvent(t, "ADDED of-one")
	s.bind(clusters["two"], second, "gadgets")
	alone.waitForEnd() // another identity
	s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+clusters["two"]+gadgetsPath, newGadgetJSON("of-two"))
	s.eventuallyStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(clusters["two"], gadgetsPath+"/of-two"), "")

	t.Run("joined", func(t *testing.T) {
		s := s.withT(t)
		for _, query := range []string{"", "?resourceVersion=0", "?limit=1", "?labelSelector=!nope"} {
			content := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allGadgetsPath+query), "")
			if found := s.parseList(content); len(found) != 2 || !found[clusters["one"]+"/of-one"] || !found[clusters["two"]+"/of-two"] {
				t.Errorf("%q: %s", query, content)
			}
			if !strings.Contains(content, `"kind":"GadgetList"`) || strings.Contains(content, `"continue"`) {
				t.Errorf("%q: %s", query, content)
			}
		}
		table := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allGadgetsPath), "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if !strings.Contains(table, `"kind":"Table"`) || !strings.Contains(table, "of-one") || !strings.Contains(table, "of-two") {
			t.Errorf("the table is %s", table)
		}
		s.expectStatus(http.StatusBadRequest, "provider", http.MethodGet, s.virtualPath("*", allGadgetsPath+"?continue=x"), "")
		s.expectStatus(http.StatusUnprocessableEntity, "provider", http.MethodGet, s.virtualPath("*", allGadgetsPath+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"), "")
	})
	t.Run("per cluster", func(t *testing.T) {
		s := s.withT(t)
		s.expectStatus(http.StatusNotFound, "provider", http.MethodGet, s.virtualPath(clusters["one"], gadgetsPath+"/of-two"), "")
		s.expectStatus(http.StatusOK, "provider", http.MethodPatch, s.virtualPath(clusters["two"], gadgetsPath+"/of-two"), `{"spec":{"size":7}}`, "Content-Type", "application/merge-patch+json")
		binding := &apisv1alpha2.APIBinding{}
		if err := s.masters.Get(shardtesting.In(t.Context(), clusters["two"]), client.ObjectKey{Name: s.export}, binding); err != nil {
			t.Fatal(err)
		}
		if applied := binding.Status.AppliedPermissionClaims; len(applied) != 1 || applied[0].IdentityHash != "" {
			t.Errorf("applied claims are %+v", applied)
		}
		if body := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(clusters["one"], "/apis/shared.dev/v1"), ""); !strings.Contains(body, `"gadgets"`) {
			t.Errorf("discovery is %s", body)
		}
	})
	t.Run("a joined watch ends as a whole", func(t *testing.T) {
		s := s.withT(t)
		stream := s.watch("provider", s.virtualPath("*", allGadgetsPath+"?watch=true"))
		seen := map[string]bool{}
		for !seen["ADDED of-one"] || !seen["ADDED of-two"] {
			event, err := stream.nextEvent()
			if err != nil {
				t.Fatal(err)
			}
			seen[event] = true
		}
		s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+clusters["one"]+gadgetsPath, newGadgetJSON("later"))
		stream.waitForEvent(t, "ADDED later")
		s.expectStatus(http.StatusOK, "masters", http.MethodDelete, "/clusters/"+clusters["two"]+gadgetsPath+"/of-two", "")
		stream.waitForEvent(t, "DELETED of-two")
		update(s, clusters["two"], s.export, &apisv1alpha2.APIBinding{}, func(b *apisv1alpha2.APIBinding) {
			b.Spec.PermissionClaims[0].State = apisv1alpha2.ClaimRejected
		})
		stream.waitForEnd()
		shardtesting.Eventually(t, "the list has the rest", func(context.Context) error {
			if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allGadgetsPath), "")); len(found) != 2 || !found[clusters["one"]+"/later"] {
				return fmt.Errorf("got %v", found)
			}
			return nil
		})
	})
	t.Run("more identities than one request joins", func(t *testing.T) { testJoinedIdentities(t, s, claim, 1) })
	t.Run("providers of a policy", func(t *testing.T) { testProviders(t, s) })
	t.Run("a policy of a producer", func(t *testing.T) {
		s := s.withT(t)
		update(s, first, "gadgets", &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
			e.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
		})
		s.eventuallyStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(clusters["one"], gadgetsPath), "")
		s.eventuallyStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath("*", allGadgetsPath), "")
	})
	t.Run("a definition of the consumer's own", func(t *testing.T) {
		s := s.withT(t)
		cluster := s.newConsumer("own", acceptClaim(claim))
		s.expectStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.shared.dev"},"spec":{"group":"shared.dev","scope":"Namespaced","names":{"plural":"gadgets","singular":"gadget","kind":"Gadget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
		s.eventuallyStatus(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+gadgetsPath, newGadgetJSON("private"))
		s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, gadgetsPath), "")
		if found := s.parseList(s.expectStatus(http.StatusOK, "masters", http.MethodGet, s.virtualPath(cluster, gadgetsPath), "")); len(found) != 0 {
			t.Errorf("listed %v", found)
		}
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(cluster, gadgetsPath+"/private"), "")
	})
}
