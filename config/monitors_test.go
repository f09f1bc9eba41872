package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// podMonitor has the fields of a PodMonitor that must fit what the operator makes.
type podMonitor struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port        string `json:"port"`
			Relabelings []struct {
				TargetLabel string `json:"targetLabel"`
				Replacement string `json:"replacement"`
			} `json:"relabelings"`
			TLSConfig struct {
				ServerName string `json:"serverName"`
			} `json:"tlsConfig"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// golden returns the objects of a kind that the operator makes.
func golden(t *testing.T, kind string, files ...string) []unstructured.Unstructured {
	t.Helper()
	var found []unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("../controllers", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var u unstructured.Unstructured
			if err := yaml.Unmarshal(document, &u.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if u.GetKind() == kind {
				found = append(found, u)
			}
		}
	}
	return found
}

// TestMonitorsFitTheServers shows that the PodMonitors select the pods that the operator makes, by a port that these have and a name that
// their certificates have, and that the job is the one of rules and dashboards.
func TestMonitorsFitTheServers(t *testing.T) {
	certificates := golden(t, "Certificate", "pki/testdata/minimal_rootshard.yaml", "pki/testdata/minimal_frontproxy.yaml", "pki/testdata/full_cacheserver.yaml")
	deployments := golden(t, "Deployment", "desired/testdata/minimal_rootshard.yaml", "desired/testdata/minimal_shard.yaml",
		"desired/testdata/minimal_frontproxy.yaml", "desired/testdata/minimal_cacheserver.yaml", "desired/testdata/minimal_internal_proxy.yaml")
	want := map[string]struct {
		pods   []string
		server string // a part of the name of the Secret with the certificate
	}{
		"atoll-shard":        {[]string{"root-kcp", "alpha-shard-kcp"}, "root-server"},
		"atoll-front-proxy":  {[]string{"frontproxy-front-proxy"}, "root-frontproxy-server"},
		"atoll-cache-server": {[]string{"cache-cache-server"}, "europe-server"},
	}
	for _, r := range build(t, "prometheus/servers").Resources() {
		if r.GetKind() != "PodMonitor" {
			continue
		}
		var monitor podMonitor
		if err := yaml.Unmarshal([]byte(r.MustYaml()), &monitor); err != nil {
			t.Fatal(err)
		}
		name := monitor.Metadata.Name
		selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		endpoint := monitor.Spec.PodMetricsEndpoints[0]
		if len(endpoint.Relabelings) != 1 || endpoint.Relabelings[0].TargetLabel != "job" || endpoint.Relabelings[0].Replacement != name {
			t.Errorf("%s: the job is not its name: %v", name, endpoint.Relabelings)
		}
		var pods []string
		for i := range deployments {
			template, _, _ := unstructured.NestedStringMap(deployments[i].Object, "spec", "template", "metadata", "labels")
			if selector.Matches(labels.Set(template)) {
				pods = append(pods, deployments[i].GetName())
			}
		}
		if !slices.Equal(pods, want[name].pods) {
			t.Errorf("%s selects pods of %v, expected %v", name, pods, want[name].pods)
		}
		for i := range deployments {
			if body, _ := yaml.Marshal(deployments[i].Object); slices.Contains(pods, deployments[i].GetName()) && !strings.Contains(string(body), "name: "+endpoint.Port+"\n") {
				t.Errorf("%s: the pods of %s have no port %s", name, deployments[i].GetName(), endpoint.Port)
			}
		}
		found := false
		for i := range certificates {
			secret, _, _ := unstructured.NestedString(certificates[i].Object, "spec", "secretName")
			names, _, _ := unstructured.NestedStringSlice(certificates[i].Object, "spec", "dnsNames")
			found = found || secret == want[name].server && slices.Contains(names, endpoint.TLSConfig.ServerName)
		}
		if !found {
			t.Errorf("%s: the certificate in %s is not for %s", name, want[name].server, endpoint.TLSConfig.ServerName)
		}
	}
}
