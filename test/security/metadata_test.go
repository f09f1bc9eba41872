package security_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// internalMetadata returns all annotations and labels by which servers store or exchange state, with values that would
// be of use to a tenant.
func (e *env) internalMetadata(t *testing.T) (annotations, labels map[string]string) {
	t.Helper()
	return map[string]string{
			"kcp.io/shard": e.placement.a, "kcp.io/cluster": e.b, "kcp.io/path": "root:b", "core.kcp.io/shard": e.placement.a, "internal.core.kcp.io/owner-shard": "root",
			"internal.tenancy.kcp.io/cluster": e.b, "internal.tenancy.kcp.io/shard": e.placement.a, "internal.tenancy.kcp.io/previous-cluster": e.b, "internal.tenancy.kcp.io/type": "root:b:private",
			"cache.kcp.io/reach": "global", "cache.kcp.io/via": "europe", "cache.kcp.io/down": "true", "cache.kcp.io/original-resource-version": "1", "cache.kcp.io/original-resource-UID": e.objectUID(t, e.adminB, e.b, confidentialPath),
			"cache.kcp.io/resource-kind": "Secret", "cache.kcp.io/resource-scope": "Cluster", "internal.kcp.io/replicate": "apis.kcp.io,tenancy.kcp.io,core.kcp.io,x", "internal.kcp.io/migrating": "true",
			"apis.kcp.io/bound-crd": "", "apis.kcp.io/schema-cluster": e.b, "apis.kcp.io/schema-name": "x", "apis.kcp.io/identity": e.exportIdentity(t, "tenancy.kcp.io"), "apis.kcp.io/schema-storage": "{}",
			"internal.apis.kcp.io/subresource-backends": `{"x/y":{"endpoints":[{"url":"https://127.0.0.1"}],"verbs":["get"]}}`, "core.kcp.io/shard-representation": "true",
			"experimental.core.kcp.io/unschedulable": "true", "experimental.tenancy.kcp.io/owner": `{"username":"bob"}`, "example.com/harmless": "kept",
		}, map[string]string{
			"kcp.io/shard": e.placement.a, "kcp.io/cluster": e.b, "internal.apis.kcp.io/export": "x", "claimed.internal.apis.kcp.io/x": "x", "tenancy.kcp.io/phase": "Ready",
			"initializer.internal.kcp.io/x": "x", "terminator.internal.kcp.io/x": "x", "name": e.placement.a, "region": "x", "rbac.authorization.k8s.io/aggregate-to-admin": "true",
		}
}

// requiredFields holds the required fields, besides metadata, of the kinds that shards publish.
var requiredFields = map[string]string{
	"clusterroles":                          `"rules":[{"apiGroups":["apis.kcp.io"],"resources":["apiexports"],"verbs":["bind"]}]`,
	"clusterrolebindings":                   `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}`,
	"validatingadmissionpolicies":           `"spec":{"matchConstraints":` + matchNothing + `,"validations":[{"expression":"true"}]}`,
	"validatingadmissionpolicybindings":     `"spec":{"policyName":"missing","validationActions":["Deny"]}`,
	"mutatingadmissionpolicies":             `"spec":{"matchConstraints":` + matchNothing + `,"reinvocationPolicy":"Never","failurePolicy":"Ignore","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}`,
	"mutatingadmissionpolicybindings":       `"spec":{"policyName":"missing"}`,
	"apiexportendpointslices":               `"spec":{"export":{"path":"root","name":"tenancy.kcp.io"}}`,
	"apiconversions":                        `"spec":{"conversions":[{"from":"v1","to":"v2","rules":[{"field":".spec.a","destination":".spec.b"}]}]}`,
	"workspaceauthenticationconfigurations": `"spec":{"jwt":[{"issuer":{"url":"https://issuer.example.com","audiences":["x"]},"claimMappings":{"username":{"claim":"sub","prefix":""}}}]}`,
	"clustercachedresources":                `"spec":{"group":"","version":"v1","resource":"namespaces"}`,
	"apiresourceschemas": `"spec":{"group":"forged.example.com","scope":"Cluster","names":{"plural":"forgeds","singular":"forged","kind":"Forged","listKind":"ForgedList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"type":"object"}}]}`,
}

const matchNothing = `{"resourceRules":[{"apiGroups":["unused.example.com"],"apiVersions":["*"],"resources":["*"],"operations":["CREATE"]}]}`

// testForgedMetadata writes all of these annotations and labels to an object of every kind that a tenant can create,
// with every kind of write, and reads what the shard publishes to others: published objects carry their true origin, and
// what other shards have published is unchanged.
func testForgedMetadata(t *testing.T, s *env) {
	// A workspace of its own, on the shard of b: some of the values harm the workspace that sets them.
	s.createWorkspace(t, s.a, "metadata")
	s.waitReady(t, s.a, "metadata")
	cluster := s.workspaceCluster(t, s.a, "metadata")
	home := s.serverName(s.resolveShardURL(t, cluster))
	before := s.publishedObjects(t)
	for _, resource := range s.listResources(t, s.adminA, cluster) {
		s.writeMetadata(t, cluster, resource)
	}
	s.createObject(t, exportsPath, exportJSON("of-a", ""))
	var after map[string]map[string]any
	shardtesting.Eventually(t, "all labelled objects are published", func(context.Context) error {
		after = s.publishedObjects(t)
		for resource := range requiredFields {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(key string) bool { return strings.HasPrefix(key, resource+" "+home+" "+cluster+" ") }) {
				return fmt.Errorf("no %s of %s", resource, cluster)
			}
		}
		return nil
	})
	for key, object := range after {
		s.checkOrigin(t, key, object, map[string]string{"root": "root", s.a: "root:a", s.b: "root:b", cluster: "root:a:metadata"})
		fields := strings.Fields(key)
		if previous, known := before[key]; fields[2] != cluster && fields[2] != s.a && !strings.HasPrefix(key, "logicalclusterre") && (!known || stableContent(previous) != stableContent(object)) {
			t.Errorf("%s changed to %s\nbefore: %s", key, stableContent(object), stableContent(previous))
		}
		if fields[2] == cluster && fields[1] != home {
			t.Errorf("%s is published for another shard than %s", key, home)
		}
	}
	for key := range before {
		if _, still := after[key]; !still && !strings.HasPrefix(key, "logicalclusterre") {
			t.Errorf("%s was deleted", key)
		}
	}
	// All logical clusters still resolve to the same cluster.
	for path, want := range map[string]string{"root:a:metadata": cluster, "root:a": s.a, "root:b": s.b, cluster: cluster, s.b: s.b} {
		for _, caller := range []*testUser{s.adminA, s.adminB} {
			got := s.send(t, caller, s.proxyURL, request{path: "/clusters/" + path + ownClusterPath})
			if got.status == http.StatusOK && !strings.Contains(got.body, `"kcp.io/cluster":"`+want+`"`) || got.status != http.StatusOK && caller == s.adminB && want == s.b {
				t.Errorf("%s, for %s: %d %.600s", path, caller.name, got.status, got.body)
			}
		}
	}
	annotations := s.do(t, s.masters, cluster, request{path: ownClusterPath}).object(t)["metadata"].(map[string]any)["annotations"].(map[string]any)
	for key, want := range map[string]any{"core.kcp.io/shard": home, "internal.core.kcp.io/owner-shard": s.placement.a, "kcp.io/path": "root:a:metadata", "kcp.io/cluster": cluster} {
		if annotations[key] != want {
			t.Errorf("annotation %s is %v, want %v", key, annotations[key], want)
		}
	}
}

// writeMetadata writes all annotations and labels to one object of a resource of a logical cluster.
func (e *env) writeMetadata(t *testing.T, cluster string, resource servedResource) {
	t.Helper()
	annotations, labels := e.internalMetadata(t)
	metadata, err := json.Marshal(map[string]any{"annotations": annotations, "labels": labels})
	must(t, err)
	inner := strings.Trim(string(metadata), "{}") + "}"
	name := "forged-metadata"
	switch resource.name {
	case "logicalclusters":
		name = "cluster"
	case "apiresourceschemas":
		name = "v1.forgeds.forged.example.com"
	}
	body := `{"apiVersion":"` + resource.version + `","kind":"` + resource.kind + `","metadata":{"name":"` + name + `",` + inner + `}`
	if more := requiredFields[resource.name]; more != "" {
		body += "," + more
	}
	body += "}"
	collection, object := resource.path, resource.path+"/"+name
	made := e.do(t, e.adminA, cluster, request{method: http.MethodPost, path: collection, body: body})
	current := e.do(t, e.adminA, cluster, request{path: object})
	if current.status != http.StatusOK {
		if _, published := requiredFields[resource.name]; published {
			t.Errorf("cannot create %s: %d %.300s", resource.name, made.status, made.body)
		}
		return
	}
	for _, path := range []string{object, object + "/status"} {
		for _, r := range []request{
			{method: http.MethodPatch, path: path, body: `{"metadata":{` + inner + `}}`, contentType: mergePatchType},
			{method: http.MethodPatch, path: path + "?fieldManager=forged&force=true", body: body, contentType: applyPatchType},
			{method: http.MethodPut, path: path, body: strings.Replace(current.body, `"annotations":{`, `"annotations":{"cache.kcp.io/via":"europe","cache.kcp.io/down":"x","kcp.io/shard":"`+e.placement.a+`",`, 1)},
		} {
			if got := e.do(t, e.adminA, cluster, r); got.status >= 500 {
				t.Errorf("%s %s: %d %.300s", r.method, r.path, got.status, got.body)
			}
		}
	}
}

// servedResource is a resource of a logical cluster that users can create.
type servedResource struct{ name, kind, version, path string }

// listResources returns the resources that discovery lists for a user.
func (e *env) listResources(t *testing.T, caller *testUser, cluster string) []servedResource {
	t.Helper()
	var all []servedResource
	add := func(prefix string) {
		var list struct {
			GroupVersion string
			Resources    []struct {
				Name, Kind string
				Namespaced bool
				Verbs      []string
			}
		}
		must(t, json.Unmarshal([]byte(e.do(t, caller, cluster, request{path: prefix}).body), &list))
		for _, resource := range list.Resources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "get") {
				continue
			}
			path := prefix + "/" + resource.Name
			if resource.Namespaced {
				path = prefix + "/namespaces/default/" + resource.Name
			}
			all = append(all, servedResource{resource.Name, resource.Kind, list.GroupVersion, path})
		}
	}
	add("/api/v1")
	var groups struct {
		Groups []struct {
			Versions []struct{ GroupVersion string }
		}
	}
	must(t, json.Unmarshal([]byte(e.do(t, caller, cluster, request{path: "/apis"}).body), &groups))
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			add("/apis/" + version.GroupVersion)
		}
	}
	return all
}

// publishedObjects returns all objects of the cache server, by "<resource> <shard> <logical cluster> <name>".
func (e *env) publishedObjects(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, shard := range e.layout.Shards() {
		for _, resource := range cacheclient.Resources() {
			got := e.send(t, e.masters, e.cacheURL, request{path: fmt.Sprintf("%s/shards/%s/clusters/*/apis/%s/%s/%s", cacheclient.Prefix, shard, resource.Group, resource.Version, resource.Resource)})
			if strings.Contains(got.body, confidentialData) || got.status != http.StatusOK {
				t.Errorf("%s of %s in the cache: %d %.300s", resource.Resource, shard, got.status, got.body)
				continue
			}
			items, _ := got.object(t)["items"].([]any)
			for _, item := range items {
				object := item.(map[string]any)
				annotations, _ := object["metadata"].(map[string]any)["annotations"].(map[string]any)
				all[fmt.Sprintf("%s %s %v %v", resource.Resource, shard, annotations["kcp.io/cluster"], object["metadata"].(map[string]any)["name"])] = object
			}
		}
	}
	return all
}

// checkOrigin checks the origin that a published object carries. paths maps logical clusters to their paths.
func (e *env) checkOrigin(t *testing.T, key string, object map[string]any, paths map[string]string) {
	t.Helper()
	fields := strings.Fields(key)
	resource, shard, cluster, name := fields[0], fields[1], fields[2], fields[3]
	annotations, _ := object["metadata"].(map[string]any)["annotations"].(map[string]any)
	wantAnnotations := map[string]any{"kcp.io/shard": shard, "cache.kcp.io/via": nil, "cache.kcp.io/down": nil}
	all := cacheclient.Resources()
	found := all[slices.IndexFunc(all, func(one cacheclient.Resource) bool { return one.Resource == resource })]
	switch {
	case found.Group == "sharding.kcp.io":
	case cluster == logicalcluster.Shard.String(): // each shard has one, with the Shard that it owns
		if resource != "shards" || name != shard {
			t.Errorf("%s is published", key)
		}
	default:
		if at := e.serverName(e.resolveShardURL(t, cluster)); at != shard {
			t.Errorf("%s is on %s", key, at)
		}
		path := fmt.Sprintf("/apis/%s/%s/%s/%s", found.Group, found.Version, found.Resource, name)
		original, _ := e.do(t, e.masters, cluster, request{path: path}).object(t)["metadata"].(map[string]any)
		if original["uid"] != nil {
			wantAnnotations["cache.kcp.io/original-resource-UID"] = original["uid"]
		}
	}
	if resource == "logicalclusters" {
		wantAnnotations["core.kcp.io/shard"] = shard
	}
	if _, hasPath := annotations["kcp.io/path"]; hasPath && paths[cluster] != "" {
		wantAnnotations["kcp.io/path"] = paths[cluster]
	}
	for annotation, want := range wantAnnotations {
		if annotations[annotation] != want {
			t.Errorf("%s: annotation %s is %v, want %v", key, annotation, annotations[annotation], want)
		}
	}
}

// stableContent returns the fields of an object that do not change on their own.
func stableContent(object map[string]any) string {
	kept := maps.Clone(object)
	delete(kept, "status")
	metadata, _ := kept["metadata"].(map[string]any)
	kept["metadata"] = map[string]any{"name": metadata["name"], "labels": metadata["labels"]}
	if object["kind"] == "ShardReport" {
		kept["spec"] = nil
	}
	text, _ := json.Marshal(kept)
	return string(text)
}
