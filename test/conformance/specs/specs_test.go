// Package specs is the ginkgo main around Kubernetes' end-to-end specs. It is compiled to a test binary and run by
// ginkgo in several processes, each with a workspace of its own.
package specs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	_ "k8s.io/component-base/logs/testinit" // logging flags
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/framework"
	e2econfig "k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	_ "k8s.io/kubernetes/test/utils/ktesting/format" // readable objects in failures

	// The specs.
	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/common/node"
	_ "k8s.io/kubernetes/test/e2e/instrumentation"
	_ "k8s.io/kubernetes/test/e2e/kubectl"

	"github.com/atoll-dev/atoll/test/conformance"
)

var (
	kubeconfigs = flag.String("kubeconfigs", "", "Directory with a kubeconfig per process: 1.kubeconfig, 2.kubeconfig ...")
	only        = flag.String("only", "", "Regular expression; run only specs whose text matches.")
	list        = flag.Bool("list", false, "Print every spec and whether it runs.")
	plan        *conformance.Plan
)

func TestMain(m *testing.M) {
	e2econfig.CopyFlags(e2econfig.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()

	suite, _ := ginkgo.GinkgoConfiguration()
	context := &framework.TestContext
	context.Provider = "skeleton" // no cloud, no nodes
	context.KubeConfig = filepath.Join(*kubeconfigs, fmt.Sprintf("%d.kubeconfig", suite.ParallelProcess))
	context.DumpLogsOnFailure, context.DeleteNamespace = false, true
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(context)

	var err error
	if plan, err = conformance.LoadPlan(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestSpecs runs the specs that the plan does not exclude.
func TestSpecs(t *testing.T) {
	if *kubeconfigs == "" && !*list {
		t.Skip("package conformance runs this, with workspaces")
	}
	specs := listSpecs()
	if err := plan.Stale(specs); err != nil {
		t.Fatal(err)
	}
	if *list {
		for _, spec := range specs {
			fmt.Printf("%s\t%s\t%s\n", filepath.Base(spec.File), spec.Text, plan.Reason(spec))
		}
		return
	}
	klog.EnableContextualLogging(true)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.RandomizeAllSpecs = true
	suite.FocusStrings = []string{focusExpression(t, specs)}
	ginkgo.RunSpecs(t, "Kubernetes in a workspace", suite, reporter)
}

// listSpecs lists every imported spec.
func listSpecs() []conformance.Spec {
	var specs []conformance.Spec
	for _, report := range ginkgo.PreviewSpecs("").SpecReports {
		if report.LeafNodeType == types.NodeTypeIt {
			specs = append(specs, conformance.Spec{Text: report.FullText(), File: report.LeafNodeLocation.FileName})
		}
	}
	return specs
}

// focusExpression returns an expression for the specs to run. It cannot be anchored at its start, where ginkgo puts the name of
// the suite.
func focusExpression(t *testing.T, specs []conformance.Spec) string {
	limit, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-only: %v", err)
	}
	var names []string
	for _, spec := range specs {
		if plan.Reason(spec) == "" && limit.MatchString(spec.Text) {
			names = append(names, regexp.QuoteMeta(spec.Text))
		}
	}
	if len(names) == 0 {
		t.Fatal("no spec is chosen")
	}
	return "(?:" + strings.Join(names, "|") + ")$"
}
