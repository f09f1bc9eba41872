// Package config_test builds the kustomize folders as kubectl does, and checks what they promise.
package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

func build(t *testing.T, dir string) resmap.ResMap {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	return objects
}

// ids lists objects as kind/namespace/name, with "-" for cluster-scoped ones.
func ids(objects resmap.ResMap) map[string]bool {
	out := map[string]bool{}
	for _, r := range objects.Resources() {
		namespace := r.GetNamespace()
		if namespace == "" {
			namespace = "-"
		}
		out[r.GetKind()+"/"+namespace+"/"+r.GetName()] = true
	}
	return out
}

func TestEveryFolderBuilds(t *testing.T) {
	for dir, want := range map[string][]string{
		"default": {
			"Namespace/-/atoll-system",
			"CustomResourceDefinition/-/rootshards.operator.kcp.io",
			"CustomResourceDefinition/-/frontproxies.operator.kcp.io",
			"CustomResourceDefinition/-/kubeconfigs.operator.kcp.io",
			"CustomResourceDefinition/-/shards.operator.kcp.io",
			"CustomResourceDefinition/-/cacheservers.operator.kcp.io",
			"CustomResourceDefinition/-/virtualworkspaces.operator.kcp.io",
			"CustomResourceDefinition/-/backupstores.operator.kcp.io",
			"CustomResourceDefinition/-/backups.operator.kcp.io",
			"CustomResourceDefinition/-/backupschedules.operator.kcp.io",
			"CustomResourceDefinition/-/restores.operator.kcp.io",
			"CustomResourceDefinition/-/restoredrills.operator.kcp.io",
			"ServiceAccount/atoll-system/atoll-controller-manager",
			"ClusterRole/-/atoll-manager-role",
			"ClusterRoleBinding/-/atoll-manager-rolebinding",
			"Role/atoll-system/atoll-leader-election-role",
			"RoleBinding/atoll-system/atoll-leader-election-rolebinding",
			"Deployment/atoll-system/atoll-controller-manager",
		},
		"prometheus": {
			"CustomResourceDefinition/-/rootshards.operator.kcp.io",
			"Deployment/atoll-system/atoll-controller-manager",
			"Certificate/atoll-system/atoll-metrics",
			"Service/atoll-system/atoll-metrics",
			"ServiceMonitor/atoll-system/atoll-operator",
			"PrometheusRule/atoll-system/atoll-operator",
			"ClusterRole/-/atoll-metrics-reader",
		},
		"prometheus/installation": {"PrometheusRule/-/atoll-installation"},
		"prometheus/servers": {
			"PodMonitor/kcp/atoll-shard", "PodMonitor/kcp/atoll-front-proxy", "PodMonitor/kcp/atoll-cache-server",
			"Kubeconfig/kcp/prometheus-shards", "Kubeconfig/kcp/prometheus-front-proxies",
		},
		"samples": {
			"Namespace/-/kcp",
			"RootShard/kcp/root",
			"FrontProxy/kcp/frontproxy",
			"Kubeconfig/kcp/kubeconfig-kcp-admin",
		},
		"sharded": {
			"Namespace/-/kcp",
			"RootShard/kcp/root",
			"Shard/kcp/alpha",
			"Shard/kcp/beta",
			"CacheServer/kcp/cache",
			"FrontProxy/kcp/frontproxy",
			"Kubeconfig/kcp/kubeconfig-kcp-admin",
		},
		"regions":             {"RootShard/kcp/root", "Shard/kcp/alpha", "CacheServer/kcp/europe", "VirtualWorkspace/kcp/alpha-views", "FrontProxy/kcp/frontproxy"},
		"development/regions": {"RootShard/kcp/root", "Shard/kcp/alpha", "CacheServer/kcp/europe", "VirtualWorkspace/kcp/alpha-views", "FrontProxy/kcp/frontproxy"},
		"development/sharded": {"RootShard/kcp/root", "Shard/kcp/alpha", "Shard/kcp/beta", "CacheServer/kcp/cache", "FrontProxy/kcp/frontproxy"},
		"samples/full":        {"Shard/kcp/alpha", "CacheServer/kcp/europe", "VirtualWorkspace/kcp/alpha-views", "RootShard/kcp/root", "FrontProxy/kcp/main", "Kubeconfig/kcp/team-a", "Issuer/kcp/selfsigned"},
		"sync-agent": {
			"Namespace/-/sync-agent",
			"CustomResourceDefinition/-/publishedresources.syncagent.kcp.io",
			"ServiceAccount/sync-agent/sync-agent",
			"ClusterRole/-/sync-agent",
			"ClusterRole/-/sync-agent-base",
			"ClusterRoleBinding/-/sync-agent",
			"Role/sync-agent/sync-agent",
			"RoleBinding/sync-agent/sync-agent",
			"Deployment/sync-agent/sync-agent",
		},
		"sync-agent/services":      {"Deployment/sync-agent/sync-agent-services"},
		"samples/sync-agent/agent": {"Deployment/sync-agent/sync-agent", "ClusterRole/-/sync-agent-certificates"},
		"development":              {"RootShard/kcp/root", "FrontProxy/kcp/frontproxy", "Kubeconfig/kcp/kubeconfig-kcp-admin"},
	} {
		t.Run(dir, func(t *testing.T) {
			have := ids(build(t, dir))
			for _, id := range want {
				if !have[id] {
					t.Errorf("%s is missing from %v", id, have)
				}
			}
		})
	}
}

func TestTheOperatorGetsItsImageAndItsServiceAccount(t *testing.T) {
	for _, r := range build(t, "default").Resources() {
		body := r.MustYaml()
		switch r.GetKind() {
		case "Deployment":
			for _, want := range []string{"image: docker.io/local/atoll:dev", "serviceAccountName: atoll-controller-manager", "- /operator"} {
				if !strings.Contains(body, want) {
					t.Errorf("the Deployment lacks %q:\n%s", want, body)
				}
			}
		case "ClusterRoleBinding", "RoleBinding":
			if !strings.Contains(body, "name: atoll-controller-manager\n  namespace: atoll-system") {
				t.Errorf("%s %s does not bind the operator's service account:\n%s", r.GetKind(), r.GetName(), body)
			}
		}
	}
}

func TestWithPrometheusTheOperatorServesMetrics(t *testing.T) {
	for _, r := range build(t, "prometheus").Resources() {
		if r.GetKind() != "Deployment" {
			continue
		}
		for _, want := range []string{"- --leader-elect", "- --metrics-bind-address=:8443", "- --metrics-cert-path=/etc/atoll/metrics", "name: metrics", "name: probes", "image: docker.io/local/atoll:dev"} {
			if body := r.MustYaml(); !strings.Contains(body, want) {
				t.Errorf("the Deployment lacks %q:\n%s", want, body)
			}
		}
	}
}

func TestTheMinimalRootShardIsTenLines(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join("samples", "rootshard_minimal.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(manifest), "\n"); lines > 10 {
		t.Errorf("%d lines; the README promises ten", lines)
	}
}

func TestThePublishedResourceOfTheSamplesIsValid(t *testing.T) {
	manifest, err := os.ReadFile(filepath.Join("samples", "sync-agent", "publishedresource.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	published := &syncagentv1alpha1.PublishedResource{}
	if err := yaml.UnmarshalStrict(manifest, published); err != nil {
		t.Fatal(err)
	}
	if errs := publication.Validate(&published.Spec, field.NewPath("spec")); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

// The role that overlays extend has no rules of its own: the controller manager replaces the rules of an aggregated role.
// TestKubectlApplyCanAnnotate: kubectl apply and Argo CD store what they apply in an annotation. The server refuses larger ones.
func TestKubectlApplyCanAnnotate(t *testing.T) {
	for _, dir := range []string{"default", "prometheus", "sync-agent"} {
		for _, r := range build(t, dir).Resources() {
			applied, err := r.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if limit := validation.TotalAnnotationSizeLimitB; len(applied) > limit*99/100 {
				t.Errorf("%s/%s: %s %s has %d bytes, and annotations at most %d: shorten the descriptions (max_description in hack/generate.sh)",
					dir, r.GetNamespace(), r.GetKind(), r.GetName(), len(applied), limit)
			}
		}
	}
}

func TestTheRoleOfTheSyncAgentIsAggregated(t *testing.T) {
	const label = "syncagent.kcp.io/aggregate-to-sync-agent"
	aggregated, parts := "", 0
	for _, r := range build(t, "samples/sync-agent/agent").Resources() {
		if r.GetKind() != "ClusterRole" {
			continue
		}
		if r.GetName() == "sync-agent" {
			aggregated = r.MustYaml()
		}
		if r.GetLabels()[label] == "true" {
			parts++
		}
	}
	if !strings.Contains(aggregated, label+`: "true"`) || parts != 2 {
		t.Errorf("%d roles are labelled for\n%s", parts, aggregated)
	}
}

// relative is the path of a folder of config from another one.
func relative(t *testing.T, from, folder string) string {
	t.Helper()
	out, err := filepath.Abs(folder)
	if err == nil {
		out, err = filepath.Rel(from, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRestoreDrill: the component gives the operator of config/default the right to the namespace that its flag names, and to no other.
func TestRestoreDrill(t *testing.T) {
	overlay := t.TempDir()
	content := "resources: [" + relative(t, overlay, "default") + "]\ncomponents: [" + relative(t, overlay, "restore-drill") + "]\n"
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range build(t, overlay).Resources() {
		text, err := object.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		found[object.GetKind()+"/"+object.GetName()] = string(text)
	}
	for name, want := range map[string]string{
		"Deployment/atoll-controller-manager": "- --restore-drill-namespace=restore-drill\n",
		"ClusterRole/atoll-restore-drill-role": `  resourceNames:
  - restore-drill
  resources:
  - namespaces
  verbs:
  - create
  - patch
  - delete
`,
		"ClusterRoleBinding/atoll-restore-drill-rolebinding": "- kind: ServiceAccount\n  name: atoll-controller-manager\n  namespace: atoll-system\n",
		"ServiceAccount/atoll-controller-manager":            "namespace: atoll-system\n",
	} {
		if !strings.Contains(found[name], want) {
			t.Errorf("%s: want %q in\n%s", name, want, found[name])
		}
	}
}

// TestArgoCDHasHealthChecks compares the definitions with the checks of config/argocd: each kind with conditions has one.
func TestArgoCDHasHealthChecks(t *testing.T) {
	overlay := t.TempDir()
	component := relative(t, overlay, "argocd")
	for name, content := range map[string]string{
		"kustomization.yaml": "resources: [argocd-cm.yaml]\ncomponents: [" + component + "]\n",
		"argocd-cm.yaml":     "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}, data: {kept: yes please}}\n",
	} {
		if err := os.WriteFile(filepath.Join(overlay, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := build(t, overlay).Resources()[0].GetDataMap()
	if settings["kept"] != "yes please" {
		t.Errorf("the settings of Argo CD are lost: %v", settings)
	}
	const prefix = "resource.customizations.health."
	unknown := map[string]bool{}
	for key := range settings {
		if strings.HasPrefix(key, prefix) {
			unknown[key] = true
		}
	}
	for _, pattern := range []string{"crd/bases/*.yaml", "kcp/crd/*.yaml", "sync-agent/crd/syncagent*.yaml", "../infrastructure/catalogue/crd/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var definition struct {
				Spec struct {
					Group string
					Names struct{ Kind string }
				}
			}
			if err := yaml.Unmarshal(content, &definition); err != nil {
				t.Fatal(err)
			}
			key := prefix + definition.Spec.Group + "_" + definition.Spec.Names.Kind
			if strings.Contains(string(content), "conditions:\n") && settings[key] == "" {
				t.Errorf("%s has conditions and no check %s", file, key)
			}
			delete(unknown, key)
		}
	}
	for key := range unknown {
		t.Errorf("%s is for no kind", key)
	}
}
