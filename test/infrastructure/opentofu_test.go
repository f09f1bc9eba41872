package infrastructure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/infrastructure/backendtest"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// tofuModule creates resources that need no cloud: its infrastructure is its state.
const tofuModule = `
variable "name" { type = string }
variable "size" { type = string }
resource "terraform_data" "main" { input = var.size }
resource "terraform_data" "extra" { input = "` + backendtest.Confidential + `" }
output "endpoint" { value = "${var.name}.example.org" }
output "size" { value = terraform_data.main.output }
output "marker" { value = terraform_data.extra.output }
`

// The real runner and the real tofu run as processes. Their runs are not the process that the suite kills.
func TestOpenTofu(t *testing.T) {
	t.Parallel()
	shared.Start(t)
	config, err := json.Marshal(map[string]any{
		"module":    map[string]any{"inline": map[string]any{"main.tf": tofuModule}},
		"variables": map[string]any{"name": "${self.metadata.name}", "size": "${self.spec.size}"}, "outputs": []string{"endpoint", "size"},
		"driftInterval": "12s", "autoApply": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	made, err := runtimecluster.NewClient(shared.runtime.Config)
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Suite{
		Environment: shared.installation,
		New: func(t testing.TB, cfg backendtest.Config) backend.Backend {
			return opentofu.New(opentofu.Config{Config: inRuntime(t, cfg), Image: "registry.example.org/runner:1", Retry: 100 * time.Millisecond, LeaseDuration: 5 * time.Second})
		},
		BackendConfig: string(config),
		InvalidConfig: strings.Replace(string(config), `"endpoint","size"`, `"endpoint","sise"`, 1),
		Made:          states{made},
		Words:         []string{"tofu", "terraform", "job", "tfstate", "inventory", "runtimecluster"},
		Instances:     4, // each is several processes
		Timeout:       2 * time.Minute,
	})
}

// states observes instances whose infrastructure is their state.
type states struct{ client.Client }

func (s states) List(ctx context.Context, tenant logicalcluster.Name) ([]string, error) {
	var names []string
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "ServiceAccount"}, {Group: "batch", Version: "v1", Kind: "Job"},
		{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	} {
		found := &metav1.PartialObjectMetadataList{}
		found.SetGroupVersionKind(gvk)
		if err := s.Client.List(ctx, found, client.InNamespace(tenant.String()), client.MatchingLabels{"app.kubernetes.io/managed-by": "infrastructure-provider"}); err != nil {
			return nil, err
		}
		for i := range found.Items {
			names = append(names, gvk.Kind+" "+found.Items[i].Name+" "+valueOf(found.Items[i].Annotations, "/run-operation"))
		}
	}
	return names, nil
}

// state returns the Secret with the state of an instance, nil if there is none.
func (s states) state(ctx context.Context, tenant logicalcluster.Name, instance string) (*corev1.Secret, []byte, error) {
	var found corev1.SecretList
	if err := s.Client.List(ctx, &found, client.InNamespace(tenant.String())); err != nil {
		return nil, nil, err
	}
	for i := range found.Items {
		if strings.HasSuffix(found.Items[i].Name, runner.StateName("")) && valueOf(found.Items[i].Labels, "/instance") == instance {
			text, err := runner.DecodeState(&found.Items[i])
			return &found.Items[i], text, err
		}
	}
	return nil, nil, nil
}

// valueOf returns the value of the label or annotation whose key has a suffix: each suite has its own API group.
func valueOf(values map[string]string, suffix string) string {
	for key, value := range values {
		if strings.HasSuffix(key, suffix) {
			return value
		}
	}
	return ""
}

func (s states) Size(ctx context.Context, tenant logicalcluster.Name, instance string) (string, error) {
	_, text, err := s.state(ctx, tenant, instance)
	if err != nil || len(text) == 0 {
		return "", err
	}
	var state struct {
		Resources []struct {
			Name      string
			Instances []struct {
				Attributes struct{ Input struct{ Value string } }
			}
		}
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return "", fmt.Errorf("the state %s: %w", text, err)
	}
	for _, resource := range state.Resources {
		if resource.Name == "main" && len(resource.Instances) == 1 {
			return resource.Instances[0].Attributes.Input.Value, nil
		}
	}
	return "", nil
}

func (s states) Damage(ctx context.Context, tenant logicalcluster.Name, instance string) error {
	secret, text, err := s.state(ctx, tenant, instance)
	if err != nil {
		return err
	}
	if secret == nil {
		return fmt.Errorf("instance %s has no state", instance)
	}
	damaged := bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(`"small"`), []byte(`"damaged"`)), []byte(`"large"`), []byte(`"damaged"`))
	if secret.Data[runner.StateKey], err = runner.EncodeState(bytes.NewReader(damaged)); err != nil {
		return err
	}
	return s.Update(ctx, secret)
}
