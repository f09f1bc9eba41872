// Command vet runs the analyzers of go vet, logcheck of Kubernetes, and those of this project on the packages of modules, tests included:
//
//	go run ./hack/vet -tags e2e . api
//
// It reads the export data of dependencies, which the build cache contains. go vet analyzes their sources: with an empty cache, the
// analysis of Kubernetes takes longer than all other checks. From the sources, go vet learns which functions format like Printf; instead,
// this command names those that the project calls.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
	logcheck "sigs.k8s.io/logtools/logcheck/pkg"

	"github.com/atoll-dev/atoll/hack/vet/logline"
	"github.com/atoll-dev/atoll/hack/vet/receivername"
	"github.com/atoll-dev/atoll/hack/vet/typednil"
)

// formatting are functions of dependencies that format like Printf: those of klog, and of packages that wrap fmt. Names of methods and
// functions of any package are compared without case.
const formatting = "Infof,Warningf,Errorf,Fatalf,Exitf,Wrapf,NewForbiddenf,Skipf,Failf,Logf"

func main() {
	tags := flag.String("tags", "", "build tags, as of go build")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: vet [-tags TAGS] DIRECTORY...\n\nChecks all packages of the modules in the directories, for example: vet -tags e2e . api")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := printf.Analyzer.Flags.Set("funcs", formatting); err != nil {
		fmt.Fprintln(os.Stderr, "vet:", err)
		os.Exit(2)
	}
	code := 0
	for _, directory := range flag.Args() {
		findings, err := check(os.Stdout, directory, *tags, "./...")
		if err != nil {
			fmt.Fprintf(os.Stderr, "vet: %s: %v\n", directory, err)
		}
		if err != nil || findings > 0 {
			code = 1
		}
	}
	os.Exit(code)
}

// check prints the findings in packages of a module, and returns their number.
func check(out io.Writer, directory, tags string, patterns ...string) (int, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.LoadSyntax | packages.NeedModule | packages.NeedForTest, Dir: directory, BuildFlags: []string{"-tags=" + tags}, Tests: true,
	}, patterns...)
	if err != nil {
		return 0, err
	}
	if packages.PrintErrors(loaded) > 0 {
		return 0, errors.New("some packages do not compile")
	}
	initial := map[*packages.Package]bool{}
	for _, pkg := range loaded {
		initial[pkg] = true
	}
	for _, pkg := range loaded { // dependencies have no syntax to analyze
		maps.DeleteFunc(pkg.Imports, func(_ string, imported *packages.Package) bool { return !initial[imported] })
	}
	logs, _ := logcheck.Analyser()
	lines := map[string]bool{} // a file belongs to its package and to that with its tests
	for _, run := range []struct {
		analyzers []*analysis.Analyzer
		on        []*packages.Package
	}{
		{append(slices.Clone(vet.Suite), logs, logline.Analyzer, receivername.Analyzer), loaded},
		{[]*analysis.Analyzer{typednil.Analyzer}, slices.DeleteFunc(slices.Clone(loaded), isTest)},
	} {
		graph, err := checker.Analyze(run.analyzers, run.on, nil)
		if err != nil {
			return 0, err
		}
		for _, action := range graph.Roots {
			if action.Err != nil {
				return 0, fmt.Errorf("%s on %s: %w", action.Analyzer, action.Package, action.Err)
			}
			for _, finding := range action.Diagnostics {
				lines[fmt.Sprintf("%s: %s (%s)", action.Package.Fset.Position(finding.Pos), finding.Message, action.Analyzer)] = true
			}
		}
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintln(out, line)
	}
	return len(lines), nil
}

// isTest reports whether a package has test files, or is the program of tests.
func isTest(pkg *packages.Package) bool {
	return pkg.ForTest != "" || strings.HasSuffix(pkg.ID, ".test")
}
