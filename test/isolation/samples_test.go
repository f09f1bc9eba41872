package isolation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"testing"
)

// sample returns a valid object of the resource. Most kinds need only a name; the minimal content of the others is
// here.
func (r resource) sample(t *testing.T, ws *workspaceClient, name string) string {
	t.Helper()
	metadata := map[string]any{
		"name":   name,
		"labels": map[string]string{testLabel: r.labelValue()},
		// The forged cluster annotation must have no effect.
		"annotations": map[string]string{markerKey: ws.marker, "kcp.io/cluster": "root"},
	}
	if r.Namespaced {
		metadata["namespace"] = namespace
	}
	object := map[string]any{"apiVersion": r.version(), "kind": r.Kind, "metadata": metadata}
	if content, ok := minimalContent[r.key()]; ok {
		maps.Copy(object, content)
	}
	if plural, group, isDefinition := strings.Cut(name, "."); isDefinition && r.Name == "customresourcedefinitions" {
		object["spec"] = fields{
			"group": group, "scope": "Cluster", "names": fields{"plural": plural, "singular": plural, "kind": plural, "listKind": plural + "list"},
			"versions": []fields{{"name": "v1", "served": true, "storage": true, "schema": fields{"openAPIV3Schema": fields{"type": "object"}}}},
		}
	}
	if r.key() == "certificatesigningrequests.certificates.k8s.io" {
		object["spec"].(map[string]any)["request"] = signingRequest(t)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

type fields = map[string]any

// matchNothing matches no existing resource.
var matchNothing = fields{"resourceRules": []fields{{"apiGroups": []string{"unused.example.com"}, "apiVersions": []string{"*"}, "resources": []string{"*"}, "operations": []string{"CREATE"}}}}

var minimalContent = map[string]fields{
	"events": {"involvedObject": fields{"namespace": namespace, "name": "x"}, "reason": "Test"},
	"events.events.k8s.io": {
		"regarding": fields{"namespace": namespace, "name": "x"}, "reason": "Test", "action": "Test", "type": "Normal",
		"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/test", "reportingInstance": "test",
	},
	"resourcequotas": {"spec": fields{"hard": fields{"count/nothing.example.com": "1"}}},
	"rolebindings.rbac.authorization.k8s.io": {
		"roleRef": fields{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
	},
	"clusterrolebindings.rbac.authorization.k8s.io": {
		"roleRef": fields{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
	},
	"certificatesigningrequests.certificates.k8s.io": {
		"spec": fields{"signerName": "example.com/test", "usages": []string{"client auth"}},
	},
	"validatingadmissionpolicies.admissionregistration.k8s.io": {
		"spec": fields{"matchConstraints": matchNothing, "validations": []fields{{"expression": "true"}}},
	},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": {
		"spec": fields{"policyName": "missing", "validationActions": []string{"Deny"}},
	},
	"mutatingadmissionpolicies.admissionregistration.k8s.io": {
		"spec": fields{
			"matchConstraints": matchNothing, "reinvocationPolicy": "Never", "failurePolicy": "Ignore",
			"mutations": []fields{{"patchType": "ApplyConfiguration", "applyConfiguration": fields{"expression": "Object{}"}}},
		},
	},
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io": {"spec": fields{"policyName": "missing"}},
	"workspaces.tenancy.kcp.io":                                    {"spec": fields{"type": fields{"name": "universal", "path": "root"}}},
	"workspaceauthenticationconfigurations.tenancy.kcp.io": {
		"spec": fields{"jwt": []fields{{
			"issuer":        fields{"url": "https://issuer.example.com", "audiences": []string{"x"}},
			"claimMappings": fields{"username": fields{"claim": "sub", "prefix": ""}},
		}}},
	},
	"apiresourceschemas.apis.kcp.io": {
		"spec": fields{
			"group": "pairs.example.com", "scope": "Cluster", "names": fields{"plural": "schemas", "singular": "schema", "kind": "Schema", "listKind": "SchemaList"},
			"versions": []fields{{"name": "v1", "served": true, "storage": true, "schema": fields{"type": "object"}}},
		},
	},
	"apibindings.apis.kcp.io":             {"spec": fields{"reference": fields{"export": fields{"path": "root", "name": "missing"}}}},
	"apiexportendpointslices.apis.kcp.io": {"spec": fields{"export": fields{"path": "root", "name": "tenancy.kcp.io"}}},
	"apiconversions.apis.kcp.io":          {"spec": fields{"conversions": []fields{{"from": "v1", "to": "v2", "rules": []fields{{"field": ".spec.a", "destination": ".spec.b"}}}}}},
	"partitionsets.topology.kcp.io":       {"spec": fields{"dimensions": []string{"region"}, "shardSelector": fields{"matchLabels": fields{"region": "unused"}}}},
	"widgets.isolation.example.com":       {"spec": fields{"size": 1}},
	"gadgets.isolation.example.com":       {"spec": fields{}},
}

// fixedNames are the names of kinds whose objects cannot have the names of the test.
var fixedNames = map[string]string{
	"logicalclusters.core.kcp.io": "cluster",
}

func signingRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "test"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}
