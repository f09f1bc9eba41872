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
	configs    = "/api/v1/namespaces/default/configmaps"
	allConfigs = "/api/v1/configmaps"
)

// change updates a binding or an export until it succeeds.
func change[T client.Object](s *env, cluster, name string, object T, with func(T)) {
	s.Helper()
	in := shardtesting.In(s.Context(), cluster)
	shardtesting.Eventually(s.T, "changing "+name, func(context.Context) error {
		if err := s.masters.Get(in, client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		with(object)
		return s.masters.Update(in, object)
	})
}

func TestClaimedResources(t *testing.T) {
	secrets := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "secrets"}, Verbs: []string{"*"}}
	everything := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"}}
	s := newEnv(t, everything, secrets)

	t.Run("what is not accepted is not seen, and can be read by nobody", func(t *testing.T) {
		s := s.on(t)
		cluster := s.consumer("reluctant")
		s.want(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+configs, configMap("private", ""))
		for _, path := range []string{configs, configs + "/private", allConfigs, "/api/v1/secrets"} {
			s.want(http.StatusForbidden, "provider", http.MethodGet, s.view(cluster, path), "")
		}
		s.want(http.StatusForbidden, "provider", http.MethodPost, s.view(cluster, configs), configMap("x", ""))
		if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view("*", allConfigs), "")); found[cluster+"/private"] {
			t.Errorf("listed are %v", found)
		}
		// Not even masters see in a view what does not belong in it.
		s.want(http.StatusNotFound, "masters", http.MethodGet, s.view(cluster, configs+"/private"), "")
	})
	t.Run("what is accepted is seen and used with the verbs that both name", func(t *testing.T) {
		s := s.on(t)
		reading := accepted(everything)
		reading.Verbs = []string{"get", "list", "watch", "create"}
		// A verb that only one names does not count, nor does "*" by one side: the contract's intersection.
		cluster := s.consumer("reading", reading)
		s.want(http.StatusForbidden, "provider", http.MethodGet, s.view(cluster, configs), "")
		change(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
			e.Spec.PermissionClaims[0].Verbs = []string{"get", "list", "watch", "create", "delete"}
		})
		s.eventually(http.StatusOK, "provider", http.MethodGet, s.view(cluster, configs), "")
		s.eventually(http.StatusCreated, "provider", http.MethodPost, s.view(cluster, configs), configMap("made", ""))
		s.eventually(http.StatusOK, "provider", http.MethodGet, s.view(cluster, configs+"/made"), "")
		s.want(http.StatusForbidden, "provider", http.MethodDelete, s.view(cluster, configs+"/made"), "")
		s.want(http.StatusForbidden, "provider", http.MethodPatch, s.view(cluster, configs+"/made"), `{"data":{"x":"y"}}`)
		s.want(http.StatusForbidden, "provider", http.MethodDelete, s.view(cluster, configs), "")
		s.want(http.StatusForbidden, "provider", http.MethodGet, s.view(cluster, "/api/v1/secrets"), "")
		shardtesting.Eventually(t, "the list over all consumers has it", func(context.Context) error {
			if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view("*", allConfigs), "")); !found[cluster+"/made"] {
				return fmt.Errorf("listed are %v", found)
			}
			return nil
		})
		change(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims[0].Verbs = []string{"*"} })
	})
	t.Run("a patch creates only where creating is accepted", func(t *testing.T) {
		s := s.on(t)
		change(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
			e.Spec.PermissionClaims[0].Verbs = []string{"get", "patch", "update"}
		})
		patching := accepted(everything)
		patching.Verbs = []string{"get", "patch", "update"}
		cluster := s.consumer("patching", patching)
		s.eventually(http.StatusNotFound, "provider", http.MethodPatch, s.view(cluster, configs+"/new"), `{"data":{"x":"y"}}`)
		s.want(http.StatusForbidden, "provider", http.MethodPatch, s.view(cluster, configs+"/new?fieldManager=x"), configMap("new", ""), "Content-Type", "application/apply-patch+yaml")
		s.want(http.StatusNotFound, "masters", http.MethodGet, "/clusters/"+cluster+configs+"/new", "")
		change(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims[0].Verbs = []string{"*"} })
	})
	t.Run("a selector bounds what is seen and what can be written", func(t *testing.T) {
		s := s.on(t)
		selecting := accepted(everything)
		selecting.Selector = apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "provider"}}}
		cluster := s.consumer("selecting", selecting)
		s.want(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+configs, configMap("private", ""))
		s.want(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+configs, configMap("given", `,"labels":{"for":"provider"}`))
		s.eventually(http.StatusOK, "provider", http.MethodGet, s.view(cluster, configs+"/given"), "")
		s.want(http.StatusNotFound, "provider", http.MethodGet, s.view(cluster, configs+"/private"), "")
		if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, configs), "")); len(found) != 1 || !found[cluster+"/given"] {
			t.Errorf("listed are %v", found)
		}
		body := s.want(http.StatusCreated, "provider", http.MethodPost, s.view(cluster, configs), configMap("made", ""))
		if !strings.Contains(body, `"for":"provider"`) {
			t.Errorf("the label is missing in %s", body)
		}
		s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, configs+"/made"), "")
		body = s.want(http.StatusForbidden, "provider", http.MethodPost, s.view(cluster, configs), configMap("other", `,"labels":{"for":"nobody"}`))
		if !strings.Contains(body, "protected label for must have value provider") {
			t.Error(body)
		}
		s.want(http.StatusForbidden, "provider", http.MethodPatch, s.view(cluster, configs+"/given"), `{"metadata":{"labels":{"for":"nobody"}}}`)
		s.want(http.StatusOK, "provider", http.MethodPatch, s.view(cluster, configs+"/given"), `{"metadata":{"labels":{"for":null}},"data":{"x":"y"}}`)
		for _, method := range []string{http.MethodPatch, http.MethodDelete} {
			body := s.want(http.StatusForbidden, "provider", method, s.view(cluster, configs+"/private"), `{}`)
			if !strings.Contains(body, "object does not match required labels") {
				t.Error(body)
			}
		}
		s.want(http.StatusForbidden, "provider", http.MethodPut, s.view(cluster, configs+"/private"), configMap("private", `,"labels":{"for":"provider"}`))
		s.want(http.StatusOK, "provider", http.MethodDelete, s.view(cluster, configs), "")
		s.want(http.StatusOK, "masters", http.MethodGet, "/clusters/"+cluster+configs+"/private", "")
		s.want(http.StatusNotFound, "masters", http.MethodGet, "/clusters/"+cluster+configs+"/given", "")
	})
	t.Run("bindings to the export are seen without a claim, and no others", func(t *testing.T) {
		s := s.on(t)
		const bindings = "/apis/apis.kcp.io/v1alpha2/apibindings"
		cluster := s.consumer("watched")
		s.offer(s.provider, "gadgets")
		s.bind(cluster, s.provider, "gadgets")
		for _, of := range []string{cluster, "*"} {
			found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view(of, bindings), ""))
			if !found[cluster+"/widgets"] || found[cluster+"/gadgets"] {
				t.Errorf("listed are %v", found)
			}
		}
		s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, bindings+"/widgets"), "")
		s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, strings.Replace(bindings, "v1alpha2", "v1alpha1", 1)+"/widgets"), "")
		s.want(http.StatusNotFound, "provider", http.MethodGet, s.view(cluster, bindings+"/gadgets"), "")
		s.want(http.StatusNotFound, "provider", http.MethodGet, s.view(cluster, bindings+"/widgets/status"), "")
		s.want(http.StatusForbidden, "provider", http.MethodDelete, s.view(cluster, bindings+"/widgets"), "")
		s.want(http.StatusMethodNotAllowed, "masters", http.MethodDelete, s.view(cluster, bindings+"/widgets"), "")
		s.want(http.StatusForbidden, "provider", http.MethodPost, s.view(cluster, bindings), `{}`)
	})
}

func TestClaimsOnResourcesOfOtherExports(t *testing.T) {
	s := newEnv(t)
	owner := s.shard.NewWorkspace(t, "root", "owner").Spec.Cluster
	identity := s.offer(owner, "gizmos")
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: "gizmos"}, IdentityHash: identity, Verbs: []string{"*"}}
	unknown := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: "unknowns"}, IdentityHash: strings.Repeat("0", 64), Verbs: []string{"*"}}
	change(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
		e.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{claim, unknown}
	})
	gizmos := "/apis/" + group + "/v1/namespaces/default/gizmos"
	allGizmos := "/apis/" + group + "/v1/gizmos"
	gizmo := strings.NewReplacer("Widget", "Gizmo").Replace

	// Nobody has bound the claimed resource yet: there are no objects.
	for accept, body := range map[string]string{
		"application/json": `"kind":"GizmoList"`,
		"application/json;as=Table;v=v1;g=meta.k8s.io":                     `"kind":"Table"`,
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io": `"kind":"PartialObjectMetadataList"`,
	} {
		if got := s.want(http.StatusOK, "provider", http.MethodGet, s.view("*", allGizmos), "", "Accept", accept); !strings.Contains(got, body) || !strings.Contains(got, `"resourceVersion":"`) {
			t.Errorf("accepting %s: %s", accept, got)
		}
	}
	s.want(http.StatusNotFound, "masters", http.MethodGet, s.view("*", "/apis/"+group+"/v1/unknowns"), "")

	waiting := s.watch("provider", s.view("*", allGizmos+"?watch=1"))
	cluster := s.consumer("both", accepted(claim))
	s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, allGizmos), "") // accepted, but not bound
	s.bind(cluster, owner, "gizmos")
	s.eventually(http.StatusCreated, "provider", http.MethodPost, s.view(cluster, gizmos), gizmo(s.widget("made", "")))
	if event, err := waiting.next(); err == nil && event != "ADDED made" { // it ends if it began before there was a storage
		t.Errorf("the watch shows %q", event)
	}
	s.eventually(http.StatusOK, "provider", http.MethodGet, s.view(cluster, gizmos+"/made"), "")
	if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view("*", allGizmos), "")); !found[cluster+"/made"] {
		t.Errorf("listed are %v", found)
	}

	// The owner leaves it to nobody, then to the provider.
	change(s, owner, "gizmos", &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) {
		e.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
	})
	for _, of := range []string{cluster, "*"} {
		s.eventually(http.StatusForbidden, "provider", http.MethodGet, s.view(of, allGizmos), "")
	}
	s.want(http.StatusOK, "masters", http.MethodGet, s.view("*", allGizmos), "")
	s.want(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+owner+"/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"max"},"rules":[{"verbs":["get","list"],"apiGroups":["`+group+`"],"resources":["gizmos"]}]}`)
	s.want(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+owner+"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"max"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"max"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"apis.kcp.io:binding:provider"}]}`)
	for _, of := range []string{cluster, "*"} {
		s.eventually(http.StatusOK, "provider", http.MethodGet, s.view(of, allGizmos), "")
	}
	s.want(http.StatusForbidden, "provider", http.MethodDelete, s.view(cluster, gizmos+"/made"), "")

	t.Run("another identity of the same name is not meant", func(t *testing.T) {
		s := s.on(t)
		other := s.shard.NewWorkspace(t, "root", "pretender").Spec.Cluster
		s.offer(other, "gizmos")
		cluster := s.consumer("mistaken", accepted(claim))
		s.bind(cluster, other, "gizmos")
		s.eventually(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+gizmos, gizmo(s.widget("theirs", "")))
		s.want(http.StatusNotFound, "provider", http.MethodGet, s.view(cluster, gizmos+"/theirs"), "")
		for _, of := range []string{cluster, "*"} {
			if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view(of, allGizmos), "")); found[cluster+"/theirs"] {
				t.Errorf("listed are %v", found)
			}
		}
	})
}

func TestWatchesEndWhenAccessIsRevoked(t *testing.T) {
	s := newEnv(t, configMaps)
	cluster := s.consumer("one", accepted(configMaps))
	neighbour := s.consumer("neighbour", accepted(configMaps))
	s.eventually(http.StatusOK, "provider", http.MethodGet, s.view(cluster, configs), "")
	own, claimed, beside := s.watch("provider", s.view(cluster, all+"?watch=1")), s.watch("provider", s.view(cluster, allConfigs+"?watch=1")), s.watch("provider", s.view(neighbour, allConfigs+"?watch=1"))

	change(s, cluster, s.export, &apisv1alpha2.APIBinding{}, func(b *apisv1alpha2.APIBinding) { b.Spec.PermissionClaims[0].State = apisv1alpha2.ClaimRejected })
	claimed.ends()
	s.want(http.StatusForbidden, "provider", http.MethodGet, s.view(cluster, configs), "")
	s.want(http.StatusCreated, "provider", http.MethodPost, s.view(cluster, widgets), s.widget("still", ""))
	own.until(t, "ADDED still")
	s.want(http.StatusOK, "provider", http.MethodDelete, s.view(cluster, widgets+"/still"), "")
	if err := s.masters.Delete(shardtesting.In(t.Context(), cluster), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: s.export}}); err != nil {
		t.Fatal(err)
	}
	own.ends()
	s.eventually(http.StatusForbidden, "provider", http.MethodGet, s.view(cluster, all), "")

	wildcard := s.watch("provider", s.view("*", allConfigs+"?watch=1"))
	s.want(http.StatusCreated, "provider", http.MethodPost, s.view(neighbour, configs), configMap("still", ""))
	beside.until(t, "ADDED still")
	change(s, s.provider, s.export, &apisv1alpha2.APIExport{}, func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims = nil })
	beside.ends()
	wildcard.ends()
	s.want(http.StatusNotFound, "masters", http.MethodGet, s.view("*", allConfigs), "")
}
