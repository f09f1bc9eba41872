package limits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadLimited(t *testing.T) {
	const (
		head  = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
		quota = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration", "limitedResources": [{"resource": "secrets", "matchContains": ["count/secrets"]}]}`
	)
	directory := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(directory, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("quota.yaml", quota)
	for sentence, tc := range map[string]struct {
		file    string
		count   int
		wantErr string
	}{
		"inline configuration":             {head + "- {name: KCPKubeResourceQuota, configuration: " + quota + "}", 1, ""},
		"relative path":                    {head + "- {name: KCPKubeResourceQuota, path: quota.yaml}", 1, ""},
		"absolute path":                    {head + "- {name: KCPKubeResourceQuota, path: " + filepath.Join(directory, "quota.yaml") + "}", 1, ""},
		"entry without configuration":      {head + "- {name: KCPKubeResourceQuota}", 0, ""},
		"no entry":                         {strings.TrimSuffix(head, "plugins:\n"), 0, ""},
		"missing file":                     {head + "- {name: KCPKubeResourceQuota, path: nope.yaml}", 0, "nope.yaml"},
		"configuration of another plug-in": {head + "- {name: kcp.io/PathAnnotation}", 0, `"kcp.io/PathAnnotation" takes no configuration`},
		"configuration of another kind":    {head + "- {name: KCPKubeResourceQuota, configuration: {apiVersion: v1, kind: ConfigMap}}", 0, "ConfigMap"},
		"file of another kind":             {"apiVersion: v1\nkind: ConfigMap\n", 0, "ConfigMap"},
		"unknown field":                    {head + "- {name: KCPKubeResourceQuota, pathh: x}", 0, "pathh"},
		"limit without a resource":         {head + "- {name: KCPKubeResourceQuota, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{matchContains: [x]}]}}", 0, "resource: Required"},
		"limit by scope":                   {head + "- {name: KCPKubeResourceQuota, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{resource: pods, matchScopes: [{scopeName: BestEffort, operator: Exists}]}]}}", 0, "matchScopes"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := ReadLimitedResources(write("admission.yaml", tc.file))
			if (tc.wantErr == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Fatalf("got %v, want an error about %q", err, tc.wantErr)
			}
			if len(got) != tc.count {
				t.Errorf("got %+v", got)
			}
		})
	}
}
