// Package conformance defines which of Kubernetes' end-to-end specs a workspace must pass. Its test starts a shard and a front proxy,
// runs the specs with ginkgo in several workspaces concurrently, and summarizes the result. It copies no code of Kubernetes: it imports
// the specs from their module.
package conformance

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed specs.yaml
var planFile []byte

// Plan is the content of specs.yaml.
type Plan struct {
	// Packages are those whose specs must all run or be skipped with a reason.
	Packages []string `json:"packages"`
	// Partial are packages of which only the named specs run.
	Partial []Part `json:"partial"`
	// Skipped are the specs of Packages that cannot run, by reason.
	Skipped []Skip `json:"skipped"`
}

// Part names the only specs of a package that run, and why the others cannot.
type Part struct {
	Package string   `json:"package"`
	Reason  string   `json:"reason"`
	Specs   []string `json:"specs"`
}

// Skip names specs that cannot run for one reason.
type Skip struct {
	Reason string   `json:"reason"`
	Specs  []string `json:"specs"`
}

// Spec identifies one ginkgo spec.
type Spec struct {
	Text string // all texts of its containers and its own, with tags
	File string // source file, as recorded by the compiler
}

// NotInPlan is the reason of specs that are imported with another package and belong to no package of the plan.
const NotInPlan = "no package of this plan"

// LoadPlan parses the embedded file.
func LoadPlan() (*Plan, error) {
	plan := &Plan{}
	if err := yaml.UnmarshalStrict(planFile, plan); err != nil {
		return nil, fmt.Errorf("specs.yaml: %w", err)
	}
	for _, skip := range plan.Skipped {
		if skip.Reason == "" || len(skip.Specs) == 0 {
			return nil, fmt.Errorf("specs.yaml: an entry of skipped without reason or specs")
		}
	}
	return plan, nil
}

// Reason returns why a spec is not run, or the empty string if it runs.
func (p *Plan) Reason(spec Spec) string {
	packagePath := path.Dir(spec.File)
	for _, part := range p.Partial {
		if !strings.HasSuffix(packagePath, "/"+part.Package) {
			continue
		}
		if anyMatches(part.Specs, spec) {
			return ""
		}
		return part.Reason
	}
	for _, name := range p.Packages {
		if !strings.HasSuffix(packagePath, "/"+name) {
			continue
		}
		for _, skip := range p.Skipped {
			if anyMatches(skip.Specs, spec) {
				return skip.Reason
			}
		}
		return ""
	}
	return NotInPlan
}

// Stale returns an error that names each entry without a spec, and each spec that two entries match.
func (p *Plan) Stale(specs []Spec) error {
	var problems []string
	seen := map[string]string{}
	for _, name := range p.specNames() {
		found := false
		for _, spec := range specs {
			if !matches(name, spec) {
				continue
			}
			found = true
			if other, twice := seen[spec.Text]; twice {
				problems = append(problems, fmt.Sprintf("%q and %q both match %q", other, name, spec.Text))
			}
			seen[spec.Text] = name
		}
		if !found {
			problems = append(problems, fmt.Sprintf("there is no spec %q", name))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("specs.yaml is out of date:\n  %s", strings.Join(problems, "\n  "))
	}
	return nil
}

func (p *Plan) specNames() []string {
	var names []string
	for _, part := range p.Partial {
		names = append(names, part.Specs...)
	}
	for _, skip := range p.Skipped {
		names = append(names, skip.Specs...)
	}
	return names
}

func anyMatches(names []string, spec Spec) bool {
	for _, name := range names {
		if matches(name, spec) {
			return true
		}
	}
	return false
}

var tags = regexp.MustCompile(` ?\[[^\]]*\]`)

// matches compares without tags such as "[sig-api-machinery]" and "[Conformance]". A name that ends in an asterisk is a
// prefix.
func matches(name string, spec Spec) bool {
	text := strings.TrimSpace(tags.ReplaceAllString(spec.Text, ""))
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		return strings.HasPrefix(text, prefix)
	}
	return text == name
}
