package virtual_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

func testDiscovery(s *env) {
	const version = "/apis/core.kcp.io/v1alpha1"
	stored := s.getResources("/clusters/root" + version)
	for view, path := range map[string]string{"initializing": s.initializingPath("prep", "*", ""), "terminating": s.terminatingPath("ending", "*", "")} {
		served := s.getResources(path + version)
		if len(served) != 2 || served["logicalclusters"].StorageVersionHash == "" {
			s.Errorf("the %s view serves %+v", view, served)
		}
		for name, resource := range served {
			verbs := metav1.Verbs{"get", "list", "watch"}
			if name == "logicalclusters/status" {
				verbs = metav1.Verbs{"get", "patch", "update"}
			}
			want := stored[name]
			want.Verbs = verbs
			if !reflect.DeepEqual(resource, want) {
				s.Errorf("the %s view describes %s as %+v, want %+v", view, name, resource, want)
			}
		}
		var core metav1.APIVersions
		if err := json.Unmarshal([]byte(s.expectStatus(http.StatusOK, "permitted", http.MethodGet, path+"/api", "")), &core); err != nil || !slices.Equal(core.Versions, []string{"v1"}) {
			s.Errorf("%v: the %s view has the core versions %v", err, view, core.Versions)
		}
		if index := s.expectStatus(http.StatusOK, "permitted", http.MethodGet, path+"/openapi/v3", ""); !strings.Contains(index, `"api"`) || !strings.Contains(index, `"apis/core.kcp.io/v1alpha1"`) {
			s.Errorf("OpenAPI of the %s view lists %s", view, index)
		}
		s.expectStatus(http.StatusNotFound, "permitted", http.MethodGet, path+"/api/v1", "")
		s.expectDiscoverable(path)
	}
}

// getResources returns the resources that a path of discovery lists, by name.
func (e *env) getResources(path string) map[string]metav1.APIResource {
	e.Helper()
	var list metav1.APIResourceList
	if err := json.Unmarshal([]byte(e.expectStatus(http.StatusOK, "masters", http.MethodGet, path, "")), &list); err != nil {
		e.Fatal(err)
	}
	resources := map[string]metav1.APIResource{}
	for _, resource := range list.APIResources {
		resources[resource.Name] = resource
	}
	return resources
}

// expectDiscoverable checks that the clients of both forms of discovery find nothing but logical clusters.
func (e *env) expectDiscoverable(path string) {
	e.Helper()
	config := rest.CopyConfig(e.users["permitted"])
	config.Host += path
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		e.Fatal(err)
	}
	for _, client := range []discovery.DiscoveryInterface{client, client.WithLegacy()} {
		_, lists, err := client.ServerGroupsAndResources()
		lists = slices.DeleteFunc(lists, func(list *metav1.APIResourceList) bool { return len(list.APIResources) == 0 })
		if err != nil || len(lists) != 1 || lists[0].GroupVersion != "core.kcp.io/v1alpha1" {
			e.Errorf("discovered %+v, %v", lists, err)
		}
	}
}
