package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// summary counts the results of the specs of the plan's packages.
type summary struct {
	passed      int
	failures    []string       // with the message
	skipped     map[string]int // by reason of the plan
	selfSkipped []string       // specs that skipped themselves, with their reason
}

func (s *summary) failed() bool { return len(s.failures) > 0 || s.passed == 0 }

func (s *summary) String() string {
	var out strings.Builder
	skippedCount := 0
	for _, count := range s.skipped {
		skippedCount += count
	}
	fmt.Fprintf(&out, "passed %d, failed %d, skipped themselves %d, skipped by the plan %d\n", s.passed, len(s.failures), len(s.selfSkipped), skippedCount)
	for _, failure := range s.failures {
		fmt.Fprintf(&out, "  FAILED   %s\n", failure)
	}
	for _, spec := range s.selfSkipped {
		fmt.Fprintf(&out, "  SKIPPED  %s\n", spec)
	}
	reasons := make([]string, 0, len(s.skipped))
	for reason := range s.skipped {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int { return s.skipped[b] - s.skipped[a] })
	for _, reason := range reasons {
		fmt.Fprintf(&out, "  by the plan %3d: %s\n", s.skipped[reason], reason)
	}
	return out.String()
}

// summarize reads ginkgo's report.
func summarize(plan *Plan, file string) (*summary, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the specs wrote no report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(raw, &reports); err != nil {
		return nil, fmt.Errorf("reading ginkgo's report: %w", err)
	}
	s := &summary{skipped: map[string]int{}}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			s.add(plan, spec)
		}
	}
	slices.Sort(s.failures)
	slices.Sort(s.selfSkipped)
	return s, nil
}

func (s *summary) add(plan *Plan, report types.SpecReport) {
	text := report.FullText()
	if text == "" {
		text = report.LeafNodeType.String()
	}
	switch {
	case report.State.Is(types.SpecStateFailureStates):
		s.failures = append(s.failures, fmt.Sprintf("%s\n           %s", text, truncateMessage(report.FailureMessage())))
	case report.LeafNodeType != types.NodeTypeIt:
	case report.State == types.SpecStatePassed:
		s.passed++
	case report.Failure.Message != "":
		s.selfSkipped = append(s.selfSkipped, fmt.Sprintf("%s\n           %s", text, truncateMessage(report.Failure.Message)))
	default:
		reason := plan.Reason(Spec{Text: text, File: report.LeafNodeLocation.FileName})
		if reason != "" && reason != NotInPlan {
			s.skipped[reason]++
		}
	}
}

// truncateMessage returns the first lines of a message: some print whole objects.
func truncateMessage(message string) string {
	lines := strings.Split(message, "\n")
	return strings.Join(lines[:min(len(lines), 6)], "\n           ")
}
