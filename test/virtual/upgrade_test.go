package virtual

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testUpgrade upgrades connections for a custom subresource at the front proxy, which reaches the backend of an export on shard alpha through
// the shard of the consumer: in a workspace on shard beta, and in the view of an export that claims the subresource.
func (e *env) testUpgrade(t *testing.T) {
	s := *e
	s.T = t
	export := s.exportSubresource()
	machines := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: "machines"}, IdentityHash: export.Status.IdentityHash, Verbs: []string{"get"}}
	consoles := machines
	consoles.Resource, consoles.Verbs = "machines/console", []string{"create"}
	s.export("other-provider", "operators", "Operator", machines, consoles)
	for _, consumer := range []string{"owner", "bound"} {
		s.bind(consumer, "provider", "machines", apisv1alpha2.ClaimAccepted)
		s.createObject(consumer, "Machine", "machines", "own", "")
	}
	s.bind("bound", "other-provider", "operators", apisv1alpha2.ClaimAccepted, machines, consoles)
	s.grantRole("owner", "operator", allRules...)
	s.grantRole("other-provider", "operator", allRules...)

	const console = "/apis/" + group + "/v1/namespaces/default/machines/own/console"
	operator := s.installation.User(t, "root", "operator")
	operator.Host = s.installation.URL
	for name, path := range map[string]string{
		"in the workspace": "/clusters/" + s.clusters["owner"],
		"by a path":        "/clusters/root:owner",
		"in the view":      "/services/apiexport/" + s.clusters["other-provider"] + "/operators/clusters/" + s.clusters["bound"],
	} {
		t.Run(name, func(t *testing.T) {
			shardtesting.Eventually(t, "the backend answers", func(context.Context) error {
				response, body := shardtesting.Send(t, operator, http.MethodPost, path+console, "", "X-Remote-Group", "system:masters")
				if response.StatusCode != http.StatusAccepted || !strings.Contains(body, `"X-Remote-User":["operator"]`) || strings.Contains(body, "system:masters") {
					return fmt.Errorf("%d: %s", response.StatusCode, body)
				}
				return nil
			})
			shardtesting.Upgrade(t, operator, path+console, "X-Remote-Group", "system:masters").ExpectEcho(t, "again")
			s.expectNoUpgrade(t, path+console)
		})
	}

	connection := shardtesting.Upgrade(t, operator, "/clusters/root:owner"+console)
	shardtesting.Eventually(t, "removing the subresource", func(context.Context) error {
		if err := s.masters.Get(s.workspaceContext("provider"), client.ObjectKeyFromObject(export), export); err != nil {
			return err
		}
		export.Spec.Resources = slices.DeleteFunc(export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool { return entry.Name == "machines/console" })
		return s.masters.Update(s.workspaceContext("provider"), export)
	})
	connection.WaitForEnd(t)
}

// expectNoUpgrade expects that a user without permissions gets an error, although the request asks for another protocol.
func (e *env) expectNoUpgrade(t *testing.T, path string) {
	t.Helper()
	stranger := rest.CopyConfig(e.installation.User(t, "root", "stranger"))
	stranger.Host = e.installation.URL
	stranger.NextProtos = []string{"http/1.1"}
	if response, body := shardtesting.Send(t, stranger, http.MethodPost, path, "", "Connection", "Upgrade", "Upgrade", "echo"); response.StatusCode != http.StatusForbidden {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
}

// exportSubresource exports machines with the subresource console, whose backend is that of the env, and returns the export.
func (e *env) exportSubresource() *apisv1alpha2.APIExport {
	e.Helper()
	e.createObjects("provider", &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "backends." + group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.ClusterScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "backends", Singular: "backend", Kind: "Backend", ListKind: "BackendList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
		}}},
	}})
	backend := `{"apiVersion":"` + group + `/v1","kind":"Backend","metadata":{"name":"shell"},"status":{"endpoints":[{"url":"` + e.backend.URL + `/base","shards":{"matchAll":true}}]}}`
	shardtesting.Eventually(e.T, "creating the address of the backend", func(context.Context) error {
		if got, content := e.result("masters", http.MethodPost, "/clusters/"+e.clusters["provider"]+"/apis/"+group+"/v1/backends", backend, "application/json"); got != "201" {
			return fmt.Errorf("%s: %s", got, content)
		}
		return nil
	})
	e.createObjects("provider", shardtesting.NewSchema("v1", schema.GroupResource{Group: group, Resource: "console"}, "Console"))
	return shardtesting.NewExport(e.T, e.masters, e.clusters["provider"], "machines", schema.GroupResource{Group: group, Resource: "machines"}, "Machine", func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources = append(export.Spec.Resources, apisv1alpha2.ResourceSchema{
			Name: "machines/console", Group: group, Schema: "v1.console." + group,
			Storage: apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{
				Reference: corev1.TypedLocalObjectReference{APIGroup: ptr.To(group), Kind: "Backend", Name: "shell"},
			}},
		})
	})
}
