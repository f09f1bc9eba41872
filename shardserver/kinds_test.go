package shardserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// kindTest describes one stored resource to the test, beyond what discovery contains.
type kindTest struct {
	// body is the minimal valid content, without apiVersion, kind and metadata. "NS" stands for the namespace, "NAME"
	// for the first part of the name.
	body string
	// suffix is appended to every name, where the content of an object determines its name. May be empty.
	suffix string
	// fieldSelector is a field selector of this kind that matches what body creates; "NS" as above. May be empty.
	fieldSelector string
	// createForbidden is the reason why users cannot create the kind; the test then uses the object named by existing.
	createForbidden, existing string
	// asyncDeletion marks kinds whose deletion only starts with the request: a controller deletes the content first.
	asyncDeletion bool
}

// kindTests has one row for every stored resource of a workspace. The test fails for a resource without a row, so
// that no kind is served without a test.
var kindTests = map[schema.GroupResource]kindTest{
	{Resource: "namespaces"}:                           {fieldSelector: "status.phase=Active", asyncDeletion: true},
	{Resource: "configmaps"}:                           {body: `data: {a: b}`},
	{Resource: "secrets"}:                              {body: `{type: example.com/walk, stringData: {a: b}}`, fieldSelector: "type=example.com/walk"},
	{Resource: "serviceaccounts"}:                      {body: `automountServiceAccountToken: false`},
	{Resource: "events"}:                               {body: `{involvedObject: {kind: Walk, namespace: NS}, reason: Walked, type: Normal}`, fieldSelector: "involvedObject.kind=Walk,reason=Walked"},
	{Group: "events.k8s.io", Resource: "events"}:       {body: `{regarding: {kind: Hike, namespace: NS}, eventTime: "2026-01-01T00:00:00.000000Z", reportingController: example.com/walk, reportingInstance: one, action: Walk, reason: Walked, type: Normal}`, fieldSelector: "regarding.kind=Hike"},
	{Resource: "resourcequotas"}:                       {body: `spec: {hard: {count/walkers.example.com: "1"}}`},
	{Group: "coordination.k8s.io", Resource: "leases"}: {body: `spec: {holderIdentity: me, leaseDurationSeconds: 10}`},

	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:               {body: `rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]`},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:        {body: `rules: [{nonResourceURLs: [/], verbs: [access]}]`},
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}:        {body: `{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: User, name: walker, apiGroup: rbac.authorization.k8s.io}]}`},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}: {body: `{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: User, name: walker, apiGroup: rbac.authorization.k8s.io}]}`},

	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: {body: `spec: {group: walk.example.com, scope: Namespaced, names: {plural: NAME, kind: NAME}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}`, suffix: ".walk.example.com", asyncDeletion: true},

	// The following objects match no served resource, so that they do not affect the tests of other kinds.
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   {body: webhooks},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     {body: webhooks},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       {body: `spec: {matchConstraints: ` + walkers + `, validations: [{expression: "true"}]}`},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: {body: `spec: {policyName: absent, validationActions: [Deny]}`},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         {body: `spec: {reinvocationPolicy: Never, matchConstraints: ` + walkers + `, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/spec/legs"}]'}}]}`},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   {body: `spec: {policyName: absent}`},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:                 {body: fmt.Sprintf(`spec: {request: %s, signerName: example.com/walk, usages: [client auth]}`, certificateRequest()), fieldSelector: "spec.signerName=example.com/walk"},

	{Group: "tenancy.kcp.io", Resource: "workspaces"}:                            {body: `spec: {type: {name: universal, path: root}}`, asyncDeletion: true},
	{Group: "tenancy.kcp.io", Resource: "workspacetypes"}:                        {body: `spec: {extend: {with: [{name: universal, path: root}]}}`},
	{Group: "tenancy.kcp.io", Resource: "workspaceauthenticationconfigurations"}: {body: `spec: {jwt: [{issuer: {url: "https://issuer.example.com", audiences: [a]}, claimMappings: {username: {claim: sub, prefix: "oidc:"}}}]}`},
	{Group: "topology.kcp.io", Resource: "partitions"}:                           {body: `spec: {selector: {matchLabels: {region: nowhere}}}`},
	{Group: "topology.kcp.io", Resource: "partitionsets"}:                        {body: `spec: {dimensions: [region], shardSelector: {matchLabels: {region: nowhere}}}`},
	{Group: "apis.kcp.io", Resource: "apiresourceschemas"}:                       {body: `spec: {group: walk.example.com, names: {plural: walkers, singular: walker, kind: Walker, listKind: WalkerList}, scope: Namespaced, versions: [{name: v1, served: true, storage: true, schema: {type: object}}]}`, suffix: ".walkers.walk.example.com"},
	{Group: "apis.kcp.io", Resource: "apiexports"}:                               {body: `spec: {}`},
	{Group: "apis.kcp.io", Resource: "apibindings"}:                              {body: `spec: {reference: {export: {path: root, name: NAME}}}`, asyncDeletion: true},
	{Group: "apis.kcp.io", Resource: "apiexportendpointslices"}:                  {body: `spec: {export: {path: root, name: tenancy.kcp.io}}`, suffix: "-slice"},
	{Group: "apis.kcp.io", Resource: "apiconversions"}:                           {body: `spec: {conversions: [{from: v1, to: v2, rules: [{field: .spec.a, destination: .spec.b}]}]}`},
	{Group: "core.kcp.io", Resource: "logicalclusters"}:                          {createForbidden: "the server makes one for each workspace, and admission refuses any other", existing: "cluster"},
}

// walkers selects a resource that is not served.
const walkers = `{resourceRules: [{apiGroups: [walk.example.com], apiVersions: [v1], resources: [walkers], operations: ["*"]}]}`

// webhooks is a configuration that is never called, because it selects a resource that is not served.
const webhooks = `webhooks: [{name: walk.example.com, clientConfig: {url: "https://walk.example.com"}, sideEffects: None, admissionReviewVersions: [v1],
  rules: [{apiGroups: [walk.example.com], apiVersions: [v1], resources: [walkers], operations: ["*"]}]}]`

// certificateRequest returns a request for a client certificate as PEM in base64, without the placeholders of names in
// a body.
func certificateRequest() string {
	for {
		if encoded := newCertificateRequest(); !strings.Contains(encoded, "NS") && !strings.Contains(encoded, "NAME") {
			return encoded
		}
	}
}

func newCertificateRequest() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "walker"}}, key)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// object returns a minimal valid object of the kind.
func (k kindTest) object(gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	first := strings.TrimSuffix(name, k.suffix)
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(k.replaceNamespace(k.body, namespace), "NAME", first)), &obj.Object); err != nil {
		panic(fmt.Sprintf("the row of %s is no YAML: %v", gvk, err))
	}
	obj.SetGroupVersionKind(gvk)
	obj.SetName(name)
	obj.SetNamespace(namespace)
	obj.SetLabels(map[string]string{"walk": first, "walked": "yes"})
	return obj
}

func (k kindTest) replaceNamespace(text, namespace string) string {
	return strings.ReplaceAll(text, "NS", namespace)
}
