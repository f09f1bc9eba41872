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
	cmdutil.BehaviorOnFatal(func(message string, code int) { panic(fatal{message, code}) })
	defer cmdutil.DefaultBehaviorOnFatal()
	defer func() {
		if caught := recover(); caught != nil {
			f, ok := caught.(fatal)
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

type fatal struct {
	message string
	code    int
}

// prints runs a command and checks that its output contains every one of the texts.
func (k *kubectl) prints(args string, texts ...string) {
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

// refuses runs a command that must fail with the text.
func (k *kubectl) refuses(args, text string) {
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

	k.prints("get --raw /version", `"gitVersion": "v1.37`)
	k.prints("api-resources", "configmaps", "customresourcedefinitions", "clusterroles")
	k.prints("auth can-i create configmaps", "yes")
	k.prints("auth whoami", "captain")

	// An object right after its definition: at no moment is the kind unknown.
	k.prints("apply -f "+set, "boats.harbour.example.org created", "configmap/tides created")
	k.prints("apply -f "+boat, "boat.harbour.example.org/dinghy created")
	k.prints("apply -f "+set, "unchanged")
	k.prints("wait --for=condition=Established crd/boats.harbour.example.org --timeout=30s", "condition met")

	k.prints("get bt", "NAME", "SEATS", "dinghy", "2")
	k.prints("get all", "dinghy")
	k.prints("explain boat", "Boat floats.")
	k.prints("explain boat.spec.seats", "Seats is how many people may sit.")
	k.prints("explain configmap.data", "UTF-8")
	k.prints("get boat dinghy -o jsonpath={.spec.seats}", "2")
	k.prints("describe boat dinghy", "Seats:", "fleet")
	k.prints("scale boat dinghy --replicas=5", "scaled")
	k.prints("wait --for=jsonpath={.spec.seats}=5 boat/dinghy --timeout=30s", "condition met")
	k.prints(`patch boat dinghy --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Afloat","status":"True"}]}}`, "patched")
	k.prints("wait --for=condition=Afloat boat/dinghy --timeout=30s", "condition met")
	k.prints("label boat dinghy colour=red", "labeled")
	k.prints("get boats -l colour=red -o name", "boat.harbour.example.org/dinghy")
	k.refuses(`patch boat dinghy --type=merge -p {"spec":{"seats":"many"}}`, "must be of type integer")
	k.refuses("get pods", `doesn't have a resource type "pods"`)
	k.prints("create namespace dock", "created")
	k.prints("wait --for=create serviceaccount/default -n dock --timeout=30s", "condition met")
	k.prints("create token default -n dock", ".")
	k.prints("create secret generic key --from-literal=a=b -n dock", "created")
	k.prints("create quota few --hard=count/configmaps=1 -n dock", "created")
	k.prints("diff -f "+set, "")

	t.Run("a set that is applied and pruned as Argo CD and Flux do it", func(t *testing.T) {
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
		k.prints("apply -f "+smaller+" --prune -l set=harbour --prune-allowlist=core/v1/ConfigMap", "configmap/tides pruned")
		k.prints("get configmaps -l set=harbour -o name", "configmap/chart")
		k.refuses("get configmap tides", "not found")
		k.prints("apply --server-side --field-manager=gitops --force-conflicts -f "+set, "serverside-applied")
		k.prints("get configmap chart -o yaml --show-managed-fields", "manager: gitops")
	})

	k.prints("delete -f "+boat, "deleted")
	k.prints("delete namespace dock --timeout=60s", "deleted")
	k.prints("delete -f "+set+" --ignore-not-found", "deleted")
	k.refuses("get boats", "could not find the requested resource") // kubectl caches discovery
}
