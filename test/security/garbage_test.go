package security_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// objectUID returns the UID of an object.
func (e *env) objectUID(t *testing.T, caller *testUser, cluster, path string) string {
	t.Helper()
	uid, _ := e.do(t, caller, cluster, request{path: path}).object(t)["metadata"].(map[string]any)["uid"].(string)
	return uid
}

func ownedConfigMapJSON(name, owners string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"ownerReferences":[%s]}}`, name, owners)
}

func ownerReferenceJSON(apiVersion, kind, name, uid string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":true,"controller":false}`, apiVersion, kind, name, uid)
}

// testGarbageCollection gives objects of workspace a owner references to objects of b and to objects that do not exist,
// in large numbers. The garbage collector must delete no object of b because of them, and must still collect garbage in b in
// time.
func testGarbageCollection(t *testing.T, s *env) {
	confidentialUID := s.objectUID(t, s.adminB, s.b, confidentialPath)
	typeUID := s.objectUID(t, s.masters, s.b, typesPath+"/private")
	clusterUID := s.objectUID(t, s.masters, s.b, ownClusterPath)
	for i, of := range []string{
		ownerReferenceJSON("v1", "ConfigMap", "confidential", confidentialUID), ownerReferenceJSON("tenancy.kcp.io/v1alpha1", "WorkspaceType", "private", typeUID), ownerReferenceJSON("core.kcp.io/v1alpha1", "LogicalCluster", "cluster", clusterUID),
		ownerReferenceJSON("core.kcp.io/v1alpha1", "Shard", "root", "x"), ownerReferenceJSON("v9", "Nothing", "x", "x"), ownerReferenceJSON("a/b/c", "ConfigMap", "x", "x"), ownerReferenceJSON("v1", "ConfigMap", "../../"+s.b+"/default/confidential", confidentialUID), ownerReferenceJSON("v1", "ConfigMap", "", ""),
	} {
		name := fmt.Sprintf("owned-%d", i)
		s.do(t, s.adminA, s.a, request{method: http.MethodPost, path: configMapsPath, body: ownedConfigMapJSON(name, of)})
		for _, policy := range []string{"Foreground", "Orphan", "Background"} {
			s.do(t, s.adminA, s.a, request{method: http.MethodDelete, path: configMapsPath + "/" + name + "?propagationPolicy=" + policy})
		}
	}
	// Each of these owners makes the garbage collector search the whole workspace.
	const many = 1500
	var writes errgroup.Group
	writes.SetLimit(16)
	for i := range many {
		writes.Go(func() error {
			body := ownedConfigMapJSON(fmt.Sprintf("bogus-%d", i), ownerReferenceJSON("v1", "ConfigMap", "missing", fmt.Sprintf("00000000-0000-4000-8000-%012d", i)))
			if got := s.sendToShard(t, s.adminA, request{method: http.MethodPost, path: "/clusters/" + s.a + configMapsPath, body: body}); got.status != http.StatusCreated {
				return fmt.Errorf("%d %s", got.status, got.body)
			}
			return nil
		})
	}
	must(t, writes.Wait())
	began := time.Now()
	for round := range 3 {
		first, second := fmt.Sprintf("first-%d", round), fmt.Sprintf("second-%d", round)
		s.do(t, s.masters, s.b, request{method: http.MethodPost, path: configMapsPath, body: ownedConfigMapJSON(first, "")})
		s.do(t, s.masters, s.b, request{method: http.MethodPost, path: configMapsPath, body: ownedConfigMapJSON(second, ownerReferenceJSON("v1", "ConfigMap", first, s.objectUID(t, s.masters, s.b, configMapsPath+"/"+first)))})
		s.do(t, s.masters, s.b, request{method: http.MethodDelete, path: configMapsPath + "/" + first + "?propagationPolicy=Background"})
		s.waitForStatus(t, s.masters, s.b, configMapsPath+"/"+second, http.StatusNotFound)
	}
	took := time.Since(began)
	t.Logf("garbage collection in b took %s", took)
	if took > 15*time.Second {
		t.Errorf("garbage collection in b took %s", took)
	}
	if got := s.do(t, s.adminB, s.b, request{path: confidentialPath}); got.status != http.StatusOK || strings.Contains(got.body, "deletionTimestamp") {
		t.Errorf("the ConfigMap of b: %d %.300s", got.status, got.body)
	}
	for _, path := range []string{typesPath + "/private", ownClusterPath} {
		if got := s.do(t, s.masters, s.b, request{path: path}); got.status != http.StatusOK || strings.Contains(got.body, "deletionTimestamp") {
			t.Errorf("%s: %d %.300s", path, got.status, got.body)
		}
	}
}
