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

var configMapsClaim = apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get", "list", "watch", "create", "deletecollection"}}

func TestExportResources(t *testing.T) {
	s := newEnv(t, configMapsClaim)
	one, two := s.newConsumer("one"), s.newConsumer("two")
	unbound := s.shard.NewWorkspace(t, "root", "unbound").Spec.Cluster

	t.Run("objects of one consumer are created, read, updated and deleted", func(t *testing.T) {
		s := s.withT(t)
		s.eventuallyStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(one, widgetsPath), s.newWidgetJSON("made", ""))
		body := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(one, widgetsPath+"/made"), "")
		if !strings.Contains(body, `"kcp.io/cluster":"`+one+`"`) {
			t.Errorf("no logical cluster in %s", body)
		}
		s.expectStatus(http.StatusOK, "provider", http.MethodPatch, s.virtualPath(one, widgetsPath+"/made"), `{"spec":{"size":2}}`)
		s.expectStatus(http.StatusOK, "provider", http.MethodPatch, s.virtualPath(one, widgetsPath+"/made/status"), `{"status":{"phase":"Fine"}}`)
		body = s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(one, widgetsPath+"/made/status"), "")
		if !strings.Contains(body, `"phase":"Fine"`) || !strings.Contains(body, `"size":2`) {
			t.Errorf("got %s", body)
		}
		s.expectStatus(http.StatusOK, "provider", http.MethodPut, s.virtualPath(one, widgetsPath+"/made"), body)
		s.expectStatus(http.StatusOK, "provider", http.MethodDelete, s.virtualPath(one, widgetsPath+"/made"), "")
		s.expectStatus(http.StatusNotFound, "provider", http.MethodGet, s.virtualPath(one, widgetsPath+"/made"), "")
		s.expectStatus(http.StatusNotFound, "provider", http.MethodPatch, s.virtualPath(one, widgetsPath+"/made"), `{"spec":{"size":2}}`)
	})
	t.Run("server-side apply creates and updates", func(t *testing.T) {
		s := s.withT(t)
		apply := []string{"Content-Type", "application/apply-patch+yaml"}
		s.expectStatus(http.StatusCreated, "provider", http.MethodPatch, s.virtualPath(one, widgetsPath+"/applied?fieldManager=x"), s.newWidgetJSON("applied", ""), apply...)
		s.expectStatus(http.StatusOK, "provider", http.MethodPatch, s.virtualPath(one, widgetsPath+"/applied?fieldManager=x"), s.newWidgetJSON("applied", `,"labels":{"a":"b"}`), apply...)
		s.expectStatus(http.StatusOK, "provider", http.MethodDelete, s.virtualPath(one, widgetsPath+"/applied"), "")
	})
	t.Run("objects that violate the consumer's schema are rejected", func(t *testing.T) {
		s.withT(t).expectStatus(http.StatusUnprocessableEntity, "provider", http.MethodPost, s.virtualPath(one, widgetsPath), strings.Replace(s.newWidgetJSON("bad", ""), `"size":1`, `"size":"large"`, 1))
	})
	t.Run("objects of all consumers are listed, also as tables and metadata", func(t *testing.T) {
		s := s.withT(t)
		s.eventuallyStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(one, widgetsPath), s.newWidgetJSON("first", ""))
		s.eventuallyStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(two, widgetsPath), s.newWidgetJSON("second", `,"labels":{"colour":"red"}`))
		for _, userName := range []string{"provider", "masters"} {
			if found := s.parseList(s.expectStatus(http.StatusOK, userName, http.MethodGet, s.virtualPath("*", allWidgetsPath), "")); len(found) != 2 || !found[one+"/first"] || !found[two+"/second"] {
				t.Errorf("%s lists %v", userName, found)
			}
		}
		if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(one, allWidgetsPath), "")); len(found) != 1 {
			t.Errorf("the objects of one consumer are %v", found)
		}
		if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allWidgetsPath+"?labelSelector=colour%3Dred"), "")); len(found) != 1 || !found[two+"/second"] {
			t.Errorf("selected objects are %v", found)
		}
		const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
		for _, cluster := range []string{"*", one} {
			if body := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, allWidgetsPath), "", "Accept", table); !strings.Contains(body, `"kind":"Table"`) || !strings.Contains(body, `"name":"Size"`) {
				t.Errorf("no table of %s: %s", cluster, body)
			}
		}
		const metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
		if body := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allWidgetsPath), "", "Accept", metadata); !strings.Contains(body, "PartialObjectMetadataList") || strings.Contains(body, `"spec"`) {
			t.Errorf("no metadata: %s", body)
		}
	})
	t.Run("watches of one or all consumers", func(t *testing.T) {
		s := s.withT(t)
		wildcard, oneWatch := s.watch("provider", s.virtualPath("*", allWidgetsPath+"?watch=1")), s.watch("provider", s.virtualPath(one, allWidgetsPath+"?watch=1"))
		s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(two, widgetsPath), s.newWidgetJSON("seen-two", ""))
		s.expectStatus(http.StatusCreated, "provider", http.MethodPost, s.virtualPath(one, widgetsPath), s.newWidgetJSON("seen-one", ""))
		wildcard.waitForEvent(t, "ADDED seen-two")
		wildcard.waitForEvent(t, "ADDED seen-one")
		for {
			event, err := oneWatch.nextEvent()
			if err != nil || event == "ADDED seen-two" {
				t.Fatalf("got %q, %v", event, err)
			}
			if event == "ADDED seen-one" {
				break
			}
		}
	})
	t.Run("a collection of one consumer is deleted", func(t *testing.T) {
		s := s.withT(t)
		s.expectStatus(http.StatusOK, "provider", http.MethodDelete, s.virtualPath(one, widgetsPath), "")
		if found := s.parseList(s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath("*", allWidgetsPath), "")); found[one+"/first"] || !found[two+"/second"] {
			t.Errorf("remaining objects are %v", found)
		}
	})
	t.Run("resources that are not offered", func(t *testing.T) {
		s := s.withT(t)
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(one, widgetsPath+"/first/scale"), "")
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(one, "/apis/"+group+"/v2/widgets"), "")
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(one, "/apis/"+group+"/v1/gadgets"), "")
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(one, "/api/v1/secrets"), "")
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, s.virtualPath(one, "/api/v1/pods"), "")
		s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(one, "/api/v1/secrets"), "")
		s.expectStatus(http.StatusBadRequest, "provider", http.MethodGet, s.virtualPath("*", widgetsPath), "")
		s.expectStatus(http.StatusBadRequest, "provider", http.MethodPost, s.virtualPath("*", allWidgetsPath), s.newWidgetJSON("x", ""))
		s.expectStatus(http.StatusBadRequest, "provider", http.MethodGet, s.virtualPath("*", allWidgetsPath+"/x"), "")
	})
	t.Run("workspaces that have not bound the export are not accessible", func(t *testing.T) {
		s := s.withT(t)
		for _, cluster := range []string{unbound, "nosuchcluster", "root", s.provider, "system:admin"} {
			body := s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, allWidgetsPath), "")
			if !strings.Contains(body, "access denied") {
				t.Errorf("the response contains the reason: %s", body)
			}
			s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, s.virtualPath(cluster, "/apis/apis.kcp.io/v1alpha2/apibindings"), "")
		}
		for _, cluster := range []string{one, "*", unbound} {
			s.expectStatus(http.StatusForbidden, "stranger", http.MethodGet, s.virtualPath(cluster, allWidgetsPath), "")
			s.expectStatus(http.StatusForbidden, "stranger", http.MethodGet, s.virtualPath(cluster, "/apis"), "")
		}
		s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, "/services/apiexport/"+s.provider+"/other/clusters/"+one+allWidgetsPath, "")
		s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, "/services/apiexport/root/"+s.export+"/clusters/*"+allWidgetsPath, "")
		s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, "/services/apiexport/"+s.provider+"/other/clusters/*"+allWidgetsPath, "")
		for _, path := range []string{"/services/apiexport/root:provider/widgets/clusters/*/apis", "/services/apiexport/" + s.provider + "/widgets/clusters/root:one/apis", "/services/apiexport/" + s.provider + "/widgets"} {
			s.expectStatus(http.StatusForbidden, "provider", http.MethodGet, path, "")
			s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, path, "")
		}
	})
}

func TestExportDocuments(t *testing.T) {
	s := newEnv(t, configMapsClaim, apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "events.k8s.io", Resource: "events"}, Verbs: []string{"*"}})
	builtDocuments := func() int64 {
		stats := s.shard.Server.DocumentStats()
		return stats.Discovery.Built + stats.OpenAPIv3.Built
	}
	for i, cluster := range []string{"*", s.newConsumer("one"), s.newConsumer("two")} {
		before := builtDocuments()
		t.Run("cluster "+cluster, func(t *testing.T) {
			if i > 0 {
				defer func() {
					if addedDocuments := builtDocuments() - before; addedDocuments > 0 {
						t.Errorf("%d documents were built for one more consumer", addedDocuments)
					}
				}()
			}
			s := s.withT(t)
			var groups metav1.APIGroupList
			decode(t, s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/apis"), ""), &groups)
			names := ""
			for _, group := range groups.Groups {
				names += group.Name + " "
			}
			if names != "events.k8s.io apis.kcp.io example.com " {
				t.Errorf("the groups are %s", names)
			}
			var resources metav1.APIResourceList
			decode(t, s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/apis/example.com/v1"), ""), &resources)
			if len(resources.APIResources) != 2 || resources.APIResources[0].Name != "widgets" || len(resources.APIResources[0].Verbs) != 8 || resources.APIResources[1].Name != "widgets/status" {
				t.Errorf("the resources are %+v", resources.APIResources)
			}
			decode(t, s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/api/v1"), ""), &resources)
			if len(resources.APIResources) != 2 || resources.APIResources[0].Name != "configmaps" || resources.APIResources[1].Name != "events" {
				t.Errorf("the core resources are %+v", resources.APIResources)
			}
			for _, version := range []string{"v1alpha1", "v1alpha2"} {
				resources = metav1.APIResourceList{}
				decode(t, s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/apis/apis.kcp.io/"+version), ""), &resources)
				if len(resources.APIResources) != 1 || resources.APIResources[0].Name != "apibindings" || len(resources.APIResources[0].Verbs) != 3 {
					t.Errorf("the bindings are %+v", resources.APIResources)
				}
			}
			var aggregated apidiscoveryv2.APIGroupDiscoveryList
			decode(t, s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/apis"), "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), &aggregated)
			if len(aggregated.Items) != 3 {
				t.Errorf("aggregated discovery is %+v", aggregated)
			}
			s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/api"), "")
			s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/version"), "")
			for _, path := range []string{"/apis/rbac.authorization.k8s.io", "/apis/example.com/v9", "/api/v2", "/openapi/v2", "/openapi/v3/apis/rbac.authorization.k8s.io/v1", "/openapi/v3/logs", "/openapi/v3/apis/example.org", "/openapi/v3/example.com", "/nothing"} {
				s.expectStatus(http.StatusNotFound, "provider", http.MethodGet, s.virtualPath(cluster, path), "")
			}
			index := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/openapi/v3"), "")
			for name, shown := range map[string]bool{
				`"api/v1"`: true, `"apis/example.com/v1"`: true, `"apis/apis.kcp.io/v1alpha2"`: true, `"version"`: true, `"api"`: true, `"apis"`: true, `"apis/apis.kcp.io"`: true, `"apis/example.com"`: true,
				`"apis/rbac.authorization.k8s.io/v1"`: false, `"apis/rbac.authorization.k8s.io"`: false, `"apis/core.kcp.io/v1alpha1"`: false,
			} {
				if strings.Contains(index, name) != shown {
					t.Errorf("index contains %s: %t: %s", name, !shown, index)
				}
			}
			for _, name := range []string{"version", "api", "apis"} {
				s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/openapi/v3/"+name), "")
			}
			for _, group := range []string{"example.com", "apis.kcp.io"} { // of a definition and of built-in resources
				document := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/openapi/v3/apis/"+group), "")
				if !strings.Contains(document, `"/apis/`+group+`/":{"get":`) || !strings.Contains(document, "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup\"") {
					t.Errorf("the group %s is %.2000s", group, document)
				}
			}
			core := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/openapi/v3/api/v1"), "")
			if !strings.Contains(core, "/api/v1/namespaces/{namespace}/configmaps/{name}") || strings.Contains(core, "secrets") || strings.Contains(core, "io.k8s.api.core.v1.Namespace\"") || !strings.Contains(core, "io.k8s.api.core.v1.ConfigMap\"") {
				t.Errorf("the core API is %.2000s", core)
			}
			own := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/openapi/v3/apis/example.com/v1"), "")
			if !strings.Contains(own, "widgets/{name}/status") || strings.Contains(own, "/scale") {
				t.Errorf("the own API is %.2000s", own)
			}
			bindings := s.expectStatus(http.StatusOK, "provider", http.MethodGet, s.virtualPath(cluster, "/openapi/v3/apis/apis.kcp.io/v1alpha2"), "")
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
