package isolation

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// resource is one resource in discovery, with its subresources.
type resource struct {
	metav1.APIResource
	subresources []metav1.APIResource
}

func (r resource) version() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// key returns the name as in CRDs: "<plural>.<group>", without the dot for the legacy group.
func (r resource) key() string { return strings.TrimSuffix(r.Name+"."+r.Group, ".") }

func (r resource) supportsVerb(verb string) bool { return slices.Contains([]string(r.Verbs), verb) }

// allNamespacesPath returns the path of the resource across namespaces.
func (r resource) allNamespacesPath() string {
	prefix := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		prefix = "/api/" + r.Version
	}
	return prefix + "/" + r.Name
}

// collectionPath returns the path of the resource in the namespace of the test, if it is namespaced.
func (r resource) collectionPath() string {
	path := r.allNamespacesPath()
	if r.Namespaced {
		cut := strings.LastIndex(path, "/")
		path = path[:cut] + "/namespaces/" + namespace + path[cut:]
	}
	return path
}

func (r resource) objectPath(name string) string { return r.collectionPath() + "/" + name }

// discoverResources returns every resource of every version that the workspace serves.
func discoverResources(t *testing.T, config *rest.Config, ws *workspaceClient) []resource {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(shardtesting.At(config, ws.cluster))
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var found []resource
	for _, list := range lists {
		version := strings.Split(list.GroupVersion, "/")
		for _, line := range list.APIResources {
			if name, _, isSub := strings.Cut(line.Name, "/"); isSub {
				i := slices.IndexFunc(found, func(r resource) bool { return r.Name == name && r.version() == list.GroupVersion })
				if i < 0 {
					t.Fatalf("%s stands in discovery before %s", line.Name, name)
				}
				found[i].subresources = append(found[i].subresources, line)
				continue
			}
			if len(version) == 2 {
				line.Group, line.Version = version[0], version[1]
			} else {
				line.Group, line.Version = "", version[0]
			}
			found = append(found, resource{APIResource: line})
		}
	}
	return found
}

// define creates a definition and waits until its resource is served.
func define(t *testing.T, ws *workspaceClient, name, definition string) {
	t.Helper()
	ws.must(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
	plural, group, _ := strings.Cut(name, ".")
	shardtesting.Eventually(t, name+" is served in "+ws.name, ws.servedCondition("/apis/"+group+"/v1/"+plural))
}
