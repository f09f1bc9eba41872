package apiexport_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

var configMaps = apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get", "list", "watch", "create", "deletecollection"}}

func TestTheResourcesOfAnExport(t *testing.T) {
	s := newEnv(t, configMaps)
	one, two := s.consumer("one"), s.consumer("two")
	unbound := s.shard.NewWorkspace(t, "root", "unbound").Spec.Cluster

	t.Run("objects of one consumer are made, read, changed and deleted", func(t *testing.T) {
		s := s.on(t)
		s.eventually(http.StatusCreated, "provider", http.MethodPost, s.view(one, widgets), s.widget("made", ""))
		body := s.want(http.StatusOK, "provider", http.MethodGet, s.view(one, widgets+"/made"), "")
		if !strings.Contains(body, `"kcp.io/cluster":"`+one+`"`) {
			t.Errorf("no logical cluster in %s", body)
		}
		s.want(http.StatusOK, "provider", http.MethodPatch, s.view(one, widgets+"/made"), `{"spec":{"size":2}}`)
		s.want(http.StatusOK, "provider", http.MethodPatch, s.view(one, widgets+"/made/status"), `{"status":{"phase":"Fine"}}`)
		body = s.want(http.StatusOK, "provider", http.MethodGet, s.view(one, widgets+"/made/status"), "")
		if !strings.Contains(body, `"phase":"Fine"`) || !strings.Contains(body, `"size":2`) {
			t.Errorf("got %s", body)
		}
		s.want(http.StatusOK, "provider", http.MethodPut, s.view(one, widgets+"/made"), body)
		s.want(http.StatusOK, "provider", http.MethodDelete, s.view(one, widgets+"/made"), "")
		s.want(http.StatusNotFound, "provider", http.MethodGet, s.view(one, widgets+"/made"), "")
		s.want(http.StatusNotFound, "provider", http.MethodPatch, s.view(one, widgets+"/made"), `{"spec":{"size":2}}`)
	})
	t.Run("server-side apply makes and changes", func(t *testing.T) {
		s := s.on(t)
		apply := []string{"Content-Type", "application/apply-patch+yaml"}
		s.want(http.StatusCreated, "provider", http.MethodPatch, s.view(one, widgets+"/applied?fieldManager=x"), s.widget("applied", ""), apply...)
		s.want(http.StatusOK, "provider", http.MethodPatch, s.view(one, widgets+"/applied?fieldManager=x"), s.widget("applied", `,"labels":{"a":"b"}`), apply...)
		s.want(http.StatusOK, "provider", http.MethodDelete, s.view(one, widgets+"/applied"), "")
	})
	t.Run("what the consumer's schema does not allow is refused", func(t *testing.T) {
		s.on(t).want(http.StatusUnprocessableEntity, "provider", http.MethodPost, s.view(one, widgets), strings.Replace(s.widget("bad", ""), `"size":1`, `"size":"large"`, 1))
	})
	t.Run("objects of all consumers are listed, as tables and metadata, too", func(t *testing.T) {
		s := s.on(t)
		s.eventually(http.StatusCreated, "provider", http.MethodPost, s.view(one, widgets), s.widget("first", ""))
		s.eventually(http.StatusCreated, "provider", http.MethodPost, s.view(two, widgets), s.widget("second", `,"labels":{"colour":"red"}`))
		for _, who := range []string{"provider", "masters"} {
			if found := s.listed(s.want(http.StatusOK, who, http.MethodGet, s.view("*", all), "")); len(found) != 2 || !found[one+"/first"] || !found[two+"/second"] {
				t.Errorf("%s lists %v", who, found)
			}
		}
		if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view(one, all), "")); len(found) != 1 {
			t.Errorf("one consumer has %v", found)
		}
		if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view("*", all+"?labelSelector=colour%3Dred"), "")); len(found) != 1 || !found[two+"/second"] {
			t.Errorf("selected are %v", found)
		}
		const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
		for _, cluster := range []string{"*", one} {
			if body := s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, all), "", "Accept", table); !strings.Contains(body, `"kind":"Table"`) || !strings.Contains(body, `"name":"Size"`) {
				t.Errorf("no table of %s: %s", cluster, body)
			}
		}
		const metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
		if body := s.want(http.StatusOK, "provider", http.MethodGet, s.view("*", all), "", "Accept", metadata); !strings.Contains(body, "PartialObjectMetadataList") || strings.Contains(body, `"spec"`) {
			t.Errorf("no metadata: %s", body)
		}
	})
	t.Run("watches see the objects of one or of all consumers", func(t *testing.T) {
		s := s.on(t)
		wildcard, here := s.watch("provider", s.view("*", all+"?watch=1")), s.watch("provider", s.view(one, all+"?watch=1"))
		s.want(http.StatusCreated, "provider", http.MethodPost, s.view(two, widgets), s.widget("seen-two", ""))
		s.want(http.StatusCreated, "provider", http.MethodPost, s.view(one, widgets), s.widget("seen-one", ""))
		wildcard.until(t, "ADDED seen-two")
		wildcard.until(t, "ADDED seen-one")
		for {
			event, err := here.next()
			if err != nil || event == "ADDED seen-two" {
				t.Fatalf("got %q, %v", event, err)
			}
			if event == "ADDED seen-one" {
				break
			}
		}
	})
	t.Run("a collection is deleted in one consumer", func(t *testing.T) {
		s := s.on(t)
		s.want(http.StatusOK, "provider", http.MethodDelete, s.view(one, widgets), "")
		if found := s.listed(s.want(http.StatusOK, "provider", http.MethodGet, s.view("*", all), "")); found[one+"/first"] || !found[two+"/second"] {
			t.Errorf("left are %v", found)
		}
	})
	t.Run("what is not offered", func(t *testing.T) {
		s := s.on(t)
		s.want(http.StatusNotFound, "masters", http.MethodGet, s.view(one, widgets+"/first/scale"), "")
		s.want(http.StatusNotFound, "masters", http.MethodGet, s.view(one, "/apis/"+group+"/v2/widgets"), "")
		s.want(http.StatusNotFound, "masters", http.MethodGet, s.view(one, "/apis/"+group+"/v1/gadgets"), "")
		s.want(http.StatusNotFound, "masters", http.MethodGet, s.view(one, "/api/v1/secrets"), "")
		s.want(http.StatusNotFound, "masters", http.MethodGet, s.view(one, "/api/v1/pods"), "")
		s.want(http.StatusForbidden, "provider", http.MethodGet, s.view(one, "/api/v1/secrets"), "")
		s.want(http.StatusBadRequest, "provider", http.MethodGet, s.view("*", widgets), "")
		s.want(http.StatusBadRequest, "provider", http.MethodPost, s.view("*", all), s.widget("x", ""))
		s.want(http.StatusBadRequest, "provider", http.MethodGet, s.view("*", all+"/x"), "")
	})
	t.Run("who has not bound the export is left alone", func(t *testing.T) {
		s := s.on(t)
		for _, cluster := range []string{unbound, "nosuchcluster", "root", s.provider, "system:admin"} {
			body := s.want(http.StatusForbidden, "provider", http.MethodGet, s.view(cluster, all), "")
			if !strings.Contains(body, "access denied") {
				t.Errorf("the reason is told: %s", body)
			}
			s.want(http.StatusForbidden, "provider", http.MethodGet, s.view(cluster, "/apis/apis.kcp.io/v1alpha2/apibindings"), "")
		}
		for _, cluster := range []string{one, "*", unbound} {
			s.want(http.StatusForbidden, "stranger", http.MethodGet, s.view(cluster, all), "")
			s.want(http.StatusForbidden, "stranger", http.MethodGet, s.view(cluster, "/apis"), "")
		}
		s.want(http.StatusForbidden, "provider", http.MethodGet, "/services/apiexport/"+s.provider+"/other/clusters/"+one+all, "")
		s.want(http.StatusForbidden, "provider", http.MethodGet, "/services/apiexport/root/"+s.export+"/clusters/*"+all, "")
		s.want(http.StatusNotFound, "masters", http.MethodGet, "/services/apiexport/"+s.provider+"/other/clusters/*"+all, "")
		for _, path := range []string{"/services/apiexport/root:provider/widgets/clusters/*/apis", "/services/apiexport/" + s.provider + "/widgets/clusters/root:one/apis", "/services/apiexport/" + s.provider + "/widgets"} {
			s.want(http.StatusForbidden, "provider", http.MethodGet, path, "")
			s.want(http.StatusNotFound, "masters", http.MethodGet, path, "")
		}
	})
}

func TestDocumentsAboutAnExport(t *testing.T) {
	s := newEnv(t, configMaps, apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "events.k8s.io", Resource: "events"}, Verbs: []string{"*"}})
	built := func() int64 {
		stats := s.shard.Server.DocumentStats()
		return stats.Discovery.Built + stats.OpenAPIv3.Built
	}
	for i, cluster := range []string{"*", s.consumer("one"), s.consumer("two")} {
		before := built()
		t.Run("cluster "+cluster, func(t *testing.T) {
			if i > 0 {
				defer func() {
					if made := built() - before; made > 0 {
						t.Errorf("%d documents were made for one more consumer", made)
					}
				}()
			}
			s := s.on(t)
			var groups metav1.APIGroupList
			decode(t, s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/apis"), ""), &groups)
			names := ""
			for _, group := range groups.Groups {
				names += group.Name + " "
			}
			if names != "events.k8s.io apis.kcp.io example.com " {
				t.Errorf("the groups are %s", names)
			}
			var resources metav1.APIResourceList
			decode(t, s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/apis/example.com/v1"), ""), &resources)
			if len(resources.APIResources) != 2 || resources.APIResources[0].Name != "widgets" || len(resources.APIResources[0].Verbs) != 8 || resources.APIResources[1].Name != "widgets/status" {
				t.Errorf("the resources are %+v", resources.APIResources)
			}
			decode(t, s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/api/v1"), ""), &resources)
			if len(resources.APIResources) != 2 || resources.APIResources[0].Name != "configmaps" || resources.APIResources[1].Name != "events" {
				t.Errorf("the core resources are %+v", resources.APIResources)
			}
			for _, version := range []string{"v1alpha1", "v1alpha2"} {
				resources = metav1.APIResourceList{}
				decode(t, s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/apis/apis.kcp.io/"+version), ""), &resources)
				if len(resources.APIResources) != 1 || resources.APIResources[0].Name != "apibindings" || len(resources.APIResources[0].Verbs) != 3 {
					t.Errorf("the bindings are %+v", resources.APIResources)
				}
			}
			var aggregated apidiscoveryv2.APIGroupDiscoveryList
			decode(t, s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/apis"), "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), &aggregated)
			if len(aggregated.Items) != 3 {
				t.Errorf("aggregated are %+v", aggregated)
			}
			s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/api"), "")
			s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/version"), "")
			for _, path := range []string{"/apis/rbac.authorization.k8s.io", "/apis/example.com/v9", "/api/v2", "/openapi/v2", "/openapi/v3/apis/rbac.authorization.k8s.io/v1", "/openapi/v3/logs", "/nothing"} {
				s.want(http.StatusNotFound, "provider", http.MethodGet, s.view(cluster, path), "")
			}
			index := s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/openapi/v3"), "")
			for name, shown := range map[string]bool{
				`"api/v1"`: true, `"apis/example.com/v1"`: true, `"apis/apis.kcp.io/v1alpha2"`: true, `"version"`: true, `"apis"`: true, `"apis/apis.kcp.io"`: true,
				`"apis/rbac.authorization.k8s.io/v1"`: false, `"apis/rbac.authorization.k8s.io"`: false, `"apis/core.kcp.io/v1alpha1"`: false,
			} {
				if strings.Contains(index, name) != shown {
					t.Errorf("that the index shows %s is %t: %s", name, !shown, index)
				}
			}
			s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/openapi/v3/version"), "")
			core := s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/openapi/v3/api/v1"), "")
			if !strings.Contains(core, "/api/v1/namespaces/{namespace}/configmaps/{name}") || strings.Contains(core, "secrets") || strings.Contains(core, "io.k8s.api.core.v1.Namespace\"") || !strings.Contains(core, "io.k8s.api.core.v1.ConfigMap\"") {
				t.Errorf("the core API is %.2000s", core)
			}
			own := s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/openapi/v3/apis/example.com/v1"), "")
			if !strings.Contains(own, "widgets/{name}/status") || strings.Contains(own, "/scale") {
				t.Errorf("the own API is %.2000s", own)
			}
			bindings := s.want(http.StatusOK, "provider", http.MethodGet, s.view(cluster, "/openapi/v3/apis/apis.kcp.io/v1alpha2"), "")
			if !strings.Contains(bindings, "apibindings/{name}") || strings.Contains(bindings, `"post"`) || strings.Contains(bindings, "apiexports") {
				t.Errorf("the bindings are %.2000s", bindings)
			}
		})
	}
}

func decode(t *testing.T, content string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(content), into); err != nil {
		t.Fatalf("%v: %s", err, content)
	}
}
