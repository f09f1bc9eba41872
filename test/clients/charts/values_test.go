package charts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/syncagent/options"
)

// renderedObjects renders a chart and returns its objects by kind and name. Names that YAML takes for another type fail the test.
func renderedObjects(t *testing.T, releaseName, namespace, directory, values string) map[string]*unstructured.Unstructured {
	t.Helper()
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	rendered, err := renderAs(t, releaseName, namespace, directory, given)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, document := range strings.Split(rendered, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		name, ok, err := unstructured.NestedString(u.Object, "metadata", "name")
		if err != nil || !ok {
			t.Fatalf("%s has the name %q: %v", u.GetKind(), name, err)
		}
		for _, field := range []string{"labels", "annotations"} {
			if _, _, err := unstructured.NestedStringMap(u.Object, "metadata", field); err != nil {
				t.Errorf("%s %s: %v", u.GetKind(), name, err)
			}
		}
		if inNamespace, ok, err := unstructured.NestedString(u.Object, "metadata", "namespace"); err != nil || ok && inNamespace != namespace {
			t.Errorf("%s %s is in namespace %q: %v", u.GetKind(), name, inNamespace, err)
		}
		if u.GetKind() == "Service" && len(name) > 63 {
			t.Errorf("the name of Service %s has %d characters", name, len(name))
		}
		found[u.GetKind()+" "+name] = u
	}
	return found
}

func field(t *testing.T, u *unstructured.Unstructured, path ...string) any {
	t.Helper()
	if u == nil {
		t.Fatalf("the object with %s is missing", strings.Join(path, "."))
	}
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestNamesThatLookLikeOtherTypes shows that names which YAML reads as a number or a boolean stay names, and that empty values are defaults.
func TestNamesThatLookLikeOtherTypes(t *testing.T) {
	operator := renderedObjects(t, "123", "456", operatorChart, `
fullnameOverride: "on"
serviceAccount: {name: "007"}
imagePullSecrets: null
argoCD: {namespace: "1"}
podDisruptionBudget: {enabled: true, minAvailable: 1000000}
`)
	without := renderedObjects(t, "123", "456", operatorChart, "podDisruptionBudget: {enabled: true, minAvailable: null}")
	if got := field(t, without["PodDisruptionBudget 123-atoll-operator"], "spec", "maxUnavailable"); got == nil {
		t.Error("without minAvailable, the budget has no maxUnavailable")
	}
	if got := field(t, operator["Deployment on"], "spec", "template", "spec", "serviceAccountName"); got != "007" {
		t.Errorf("the service account is %v", got)
	}
	if got := field(t, operator["PodDisruptionBudget on"], "spec", "minAvailable"); got != float64(1000000) && got != int64(1000000) {
		t.Errorf("minAvailable is %v (%T)", got, got)
	}
	anyUser := renderedObjects(t, "123", "456", operatorChart, "{podSecurityContext: {fsGroup: null}, securityContext: {runAsUser: null, runAsGroup: null}}")
	if text, err := yaml.Marshal(anyUser["Deployment 123-atoll-operator"]); err != nil || strings.Contains(string(text), "65532") || !strings.Contains(string(text), "runAsNonRoot: true") {
		t.Errorf("without a user, the Deployment is\n%s", text)
	}
	agent := renderedObjects(t, "123", "456", syncAgentChart, `
apiExportEndpointSliceName: "1"
kcpKubeconfig: "2"
fullnameOverride: "off"
serviceAccount: {name: "007"}
`)
	if got := field(t, agent["Deployment off"], "spec", "template", "spec", "serviceAccountName"); got != "007" {
		t.Errorf("the service account of the agent is %v", got)
	}
	installation := renderedObjects(t, "123", "456", installationChart, `
externalHostname: kcp.example.com
rootShard: {name: "yes", spec: null}
shards: {"no": {}, "1": {}}
cacheServers: {"0x1": {}}
`)
	for _, want := range []string{"RootShard yes", "Shard no", "Shard 1", "CacheServer 0x1"} {
		if installation[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if got := field(t, installation["Shard no"], "spec", "rootShard", "ref", "name"); got != "yes" {
		t.Errorf("the root shard of Shard no is %v", got)
	}
}

// TestLongNames shows that a release may have the longest name that Helm permits.
func TestLongNames(t *testing.T) {
	renderedObjects(t, strings.Repeat("a", 53), "kcp-system", operatorChart, "metrics: {enabled: true}")
	renderedObjects(t, strings.Repeat("a", 53), "kcp-system", syncAgentChart, "{apiExportEndpointSliceName: certificates, kcpKubeconfig: kcp}")
}

// TestFlagsOfTheSyncAgent shows that the agent has the flags that the chart sets, and that their descriptions match the values.
func TestFlagsOfTheSyncAgent(t *testing.T) {
	given, err := yaml.Marshal(values(t, "sync-agent"))
	if err != nil {
		t.Fatal(err)
	}
	rendered := renderedObjects(t, "certs", "agents", syncAgentChart, string(given))
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(rendered["Deployment certs-atoll-sync-agent"].Object, deployment); err != nil {
		t.Fatal(err)
	}
	got, flags := options.New(), pflag.NewFlagSet("sync-agent", pflag.ContinueOnError)
	got.AddFlags(flags)
	if err := flags.Parse(deployment.Spec.Template.Spec.Containers[0].Args); err != nil {
		t.Fatal(err)
	}
	want := options.New()
	want.KcpKubeconfig, want.Kubeconfig = "/etc/sync-agent/kcp/kubeconfig", "/etc/sync-agent/service/kubeconfig"
	want.HostOverride, want.CAFileOverride = "https://service.example.com:6443", "/etc/ca/ca.crt"
	want.EndpointSlice, want.AgentName, want.Namespace, want.PublishedResourceSelector = "certificates", "certs", "$(NAMESPACE)", "agent in (certs, all)"
	want.OrphanPolicy, want.DisabledControllers = "Delete", []string{"apiexport", "apiresourceschema"}
	want.HealthAddress, want.MetricsAddress, want.LogDebug = ":8086", ":8085", true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the options differ (-want +got):\n%s", diff)
	}
}

// TestIssuerOfOneServer shows that an issuer of one server does not apply to others.
func TestIssuerOfOneServer(t *testing.T) {
	installation := renderedObjects(t, "kcp", "kcp-system", installationChart, `
externalHostname: kcp.example.com
issuerRef: {name: platform, kind: ClusterIssuer}
rootShard: {spec: {certificates: {issuerRef: {name: special, kind: Issuer}}}}
cacheServers: {cache: {}}
`)
	for name, want := range map[string]string{"RootShard root": "special", "CacheServer cache": "platform"} {
		if got := field(t, installation[name], "spec", "certificates", "issuerRef", "name"); got != want {
			t.Errorf("%s: the issuer is %v, expected %s", name, got, want)
		}
	}
}
