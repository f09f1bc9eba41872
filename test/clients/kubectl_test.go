package clients

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/atoll-dev/atoll/test/installation"
)

// timeout bounds the waits of a client.
const timeout = time.Minute

// kubectl runs commands of kubectl in this process.
type kubectl struct {
	*testing.T
	kubeconfig string
	home       string
}

// run returns the output of a command. A failing kubectl command ends the process unless its error is caught, so the
// error handler panics and run recovers.
func (k *kubectl) run(args ...string) (output string, err error) {
	k.Helper()
	var out, errOut bytes.Buffer
	cmdutil.BehaviorOnFatal(func(message string, code int) { panic(fatalError{message, code}) })
	defer cmdutil.DefaultBehaviorOnFatal()
	defer func() {
		if caught := recover(); caught != nil {
			f, ok := caught.(fatalError)
			if !ok {
				panic(caught)
			}
			output, err = out.String(), fmt.Errorf("kubectl %s: exit code %d: %s%s", strings.Join(args, " "), f.code, f.message, errOut.String())
		}
	}()
	cmd := kubectlcmd.NewKubectlCommand(kubectlcmd.KubectlOptions{
		IOStreams:   genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut},
		ConfigFlags: genericclioptions.NewConfigFlags(true),
	})
	cmd.SetArgs(append([]string{"--kubeconfig=" + k.kubeconfig, "--cache-dir=" + filepath.Join(k.home, "cache")}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	if err := cmd.ExecuteContext(k.Context()); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errOut.String())
	}
	return out.String(), nil
}

type fatalError struct {
	message string
	code    int
}

// expectOutput runs a command and checks that its output contains every one of the texts.
func (k *kubectl) expectOutput(args string, texts ...string) {
	k.Helper()
	output, err := k.run(strings.Fields(args)...)
	if err != nil {
		k.Errorf("%v\n%s", err, output)
		return
	}
	for _, text := range texts {
		if !strings.Contains(output, text) {
			k.Errorf("kubectl %s does not print %q:\n%s", args, text, output)
		}
	}
}

// expectError runs a command that must fail with the text.
func (k *kubectl) expectError(args, text string) {
	k.Helper()
	output, err := k.run(strings.Fields(args)...)
	if err == nil || !strings.Contains(err.Error()+output, text) {
		k.Errorf("kubectl %s: got %v, want an error with %q\n%s", args, err, text, output)
	}
}

func testKubectl(t *testing.T, i *installation.Installation) {
	home := t.TempDir()
	k := &kubectl{T: t, kubeconfig: filepath.Join(home, "kubeconfig"), home: home}
	installation.WriteKubeconfig(t, i.NewWorkspace(t, "harbour", "captain"), k.kubeconfig)
	data := filepath.Join("testdata", "kubectl")
	set, boat := filepath.Join(data, "set-1.yaml"), filepath.Join(data, "boat.yaml")

	k.expectOutput("get --raw /version", `"gitVersion": "v1.37`)
	k.expectOutput("api-resources", "configmaps", "customresourcedefinitions", "clusterroles")
	k.expectOutput("auth can-i create configmaps", "yes")
	k.expectOutput("auth whoami", "captain")

	// An object can be created immediately after its definition.
	k.expectOutput("apply -f "+set, "boats.harbour.example.org created", "configmap/tides created")
	k.expectOutput("apply -f "+boat, "boat.harbour.example.org/dinghy created")
	k.expectOutput("apply -f "+set, "unchanged")
	k.expectOutput("wait --for=condition=Established crd/boats.harbour.example.org --timeout=30s", "condition met")

	k.expectOutput("get bt", "NAME", "SEATS", "dinghy", "2")
	k.expectOutput("get all", "dinghy")
	k.expectOutput("explain boat", "Boat floats.")
	k.expectOutput("explain boat.spec.seats", "Seats is how many people may sit.")
	k.expectOutput("explain configmap.data", "UTF-8")
	k.expectOutput("get boat dinghy -o jsonpath={.spec.seats}", "2")
	k.expectOutput("describe boat dinghy", "Seats:", "fleet")
	k.expectOutput("scale boat dinghy --replicas=5", "scaled")
	k.expectOutput("wait --for=jsonpath={.spec.seats}=5 boat/dinghy --timeout=30s", "condition met")
	k.expectOutput(`patch boat dinghy --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Afloat","status":"True"}]}}`, "patched")
	k.expectOutput("wait --for=condition=Afloat boat/dinghy --timeout=30s", "condition met")
	k.expectOutput("label boat dinghy colour=red", "labeled")
	k.expectOutput("get boats -l colour=red -o name", "boat.harbour.example.org/dinghy")
	k.expectError(`patch boat dinghy --type=merge -p {"spec":{"seats":"many"}}`, "must be of type integer")
	k.expectError("get pods", `doesn't have a resource type "pods"`)
	k.expectOutput("create namespace dock", "created")
	k.expectOutput("wait --for=create serviceaccount/default -n dock --timeout=30s", "condition met")
	k.expectOutput("create token default -n dock", ".")
	k.expectOutput("create secret generic key --from-literal=a=b -n dock", "created")
	k.expectOutput("create quota few --hard=count/configmaps=1 -n dock", "created")
	k.expectOutput("diff -f "+set, "")

	t.Run("apply with pruning", func(t *testing.T) {
		k := &kubectl{T: t, kubeconfig: k.kubeconfig, home: home}
		raw, err := os.ReadFile(set)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(raw), "---\n")
		smaller := filepath.Join(t.TempDir(), "set-2.yaml")
		if err := os.WriteFile(smaller, []byte(strings.Join(parts[:2], "---\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		k.expectOutput("apply -f "+smaller+" --prune -l set=harbour --prune-allowlist=core/v1/ConfigMap", "configmap/tides pruned")
		k.expectOutput("get configmaps -l set=harbour -o name", "configmap/chart")
		k.expectError("get configmap tides", "not found")
		k.expectOutput("apply --server-side --field-manager=gitops --force-conflicts -f "+set, "serverside-applied")
		k.expectOutput("get configmap chart -o yaml --show-managed-fields", "manager: gitops")
	})

	k.expectOutput("delete -f "+boat, "deleted")
	k.expectOutput("delete namespace dock --timeout=60s", "deleted")
	k.expectOutput("delete -f "+set+" --ignore-not-found", "deleted")
	k.expectError("get boats", "could not find the requested resource") // kubectl caches discovery
}
