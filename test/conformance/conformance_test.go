package conformance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/programs"
)

var (
	workspaces = flag.Int("workspaces", 4, "How many workspaces run specs concurrently.")
	only       = flag.String("only", "", "Regular expression; run only specs whose text matches.")
	outputFlag = flag.String("output", "", "Directory for the full output of the specs. Empty: a temporary one.")
)

// suiteTimeout bounds all specs together.
const suiteTimeout = 20 * time.Minute

// TestConformance runs the specs of the plan, in several workspaces behind one front proxy.
func TestConformance(t *testing.T) {
	plan, err := LoadPlan()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build(t, bin)
	outputDir := *outputFlag
	if outputDir == "" {
		outputDir = t.TempDir()
	}
	i := installation.Start(t, bin)
	for n := 1; n <= *workspaces; n++ {
		name := fmt.Sprintf("conformance-%d", n)
		config := i.NewWorkspace(t, name, fmt.Sprintf("tenant-%d", n))
		i.Open(t, "root:"+name) // some specs act as users without permissions
		installation.WriteKubeconfig(t, config, filepath.Join(bin, fmt.Sprintf("%d.kubeconfig", n)))
	}
	started := time.Now()
	report := filepath.Join(outputDir, "report.json")
	runErr := runGinkgo(t, bin, outputDir, report)
	summary, err := summarize(plan, report)
	if err != nil {
		t.Fatalf("%v (ginkgo: %v)", err, runErr)
	}
	t.Logf("%d concurrent workspaces, %s\n%s", *workspaces, time.Since(started).Round(time.Second), summary)
	if runErr != nil || summary.failed() {
		t.Errorf("not conformant: %v; the full output is in %s", runErr, outputDir)
	}
}

// build compiles the servers, the specs, and the programs they need: kubectl and ginkgo's command, which runs one
// binary of specs in several processes.
func build(t *testing.T, bin string) {
	t.Helper()
	if err := installation.Build(t.Context(), "../..", bin); err != nil {
		t.Fatal(err)
	}
	if err := programs.Build(t.Context(), ".", bin, "github.com/onsi/ginkgo/v2/ginkgo"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"build", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2", "-o", bin + string(filepath.Separator), "k8s.io/kubernetes/cmd/kubectl"},
		{"test", "-c", "-vet=off", "-ldflags", "-s -w", "-o", filepath.Join(bin, "specs.test"), "./specs"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, output)
		}
	}
}

// runGinkgo runs the specs, with one process per workspace, and writes a JSON report.
func runGinkgo(t *testing.T, bin, outputDir, report string) error {
	t.Helper()
	log, err := os.Create(filepath.Join(outputDir, "output.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "ginkgo"), "run", fmt.Sprintf("--procs=%d", *workspaces), "--no-color",
		"--timeout="+suiteTimeout.String(), "--poll-progress-after=60s", "--output-dir="+outputDir, "--json-report="+filepath.Base(report), filepath.Join(bin, "specs.test"), "--",
		"--kubeconfigs="+bin, "--kubectl-path="+filepath.Join(bin, "kubectl"), "--only="+*only)
	cmd.Stdout, cmd.Stderr = log, log
	// The specs' kubectl must not use the user's kubeconfig, and must not cache discovery: a spec that creates a
	// definition and uses it would depend on the specs before it.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(bin, "none"), "HOME="+bin, "KUBECACHEDIR="+filepath.Join(os.DevNull, "none"))
	return cmd.Run()
}
