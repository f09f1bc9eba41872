package doctor

import (
	"slices"
	"time"
)

// Severity is how much a finding matters.
type Severity string

const (
	// SeverityError means that the installation fails its users, or is about to.
	SeverityError Severity = "Error"
	// SeverityWarning means that an administrator, or the owner of one workspace, should act.
	SeverityWarning Severity = "Warning"
	// SeverityInfo is a decision of an administrator that may be out of date.
	SeverityInfo Severity = "Info"
)

// severities are in the order of the output.
var severities = []Severity{SeverityError, SeverityWarning, SeverityInfo}

// Finding is one thing that is wrong.
type Finding struct {
	// Check is the ID of the check.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Object is what it is about.
	Object string `json:"object"`
	// Message says what is wrong, in words of this command.
	Message string `json:"message"`
	// Detail is what a server says about it. A bundle does not have it.
	Detail string `json:"detail,omitempty"`
	// NextStep says what to do.
	NextStep string `json:"nextStep"`
	// Runbook is the URL of the page about it.
	Runbook string `json:"runbook"`
}

// CheckStatus is how much a check has seen.
type CheckStatus string

const (
	// StatusComplete means that the check has seen everything.
	StatusComplete CheckStatus = "Complete"
	// StatusIncomplete means that a part could not be read, so there may be more findings.
	StatusIncomplete CheckStatus = "Incomplete"
	// StatusSkipped means that the check has seen nothing.
	StatusSkipped CheckStatus = "Skipped"
)

// CheckResult is what a check has seen.
type CheckResult struct {
	ID     string      `json:"id"`
	Status CheckStatus `json:"status"`
	// Reasons are why the status is not Complete.
	Reasons []string `json:"reasons,omitempty"`

	missing []Unread
}

// APIVersion and Kind identify the shape of a Report. Fields may be added to a version; none changes its meaning or is removed.
const (
	APIVersion = "doctor.kcp.io/v1alpha1"
	Kind       = "Report"
)

// Report is the output.
type Report struct {
	APIVersion   string        `json:"apiVersion"`
	Kind         string        `json:"kind"`
	Installation string        `json:"installation"`
	ReadAt       time.Time     `json:"readAt"`
	Summary      Summary       `json:"summary"`
	Findings     []Finding     `json:"findings"`
	Checks       []CheckResult `json:"checks"`
}

// Summary has numbers of findings, and of checks that have not seen everything.
type Summary struct {
	Errors     int `json:"errors"`
	Warnings   int `json:"warnings"`
	Infos      int `json:"infos"`
	Incomplete int `json:"incomplete"`
	Skipped    int `json:"skipped"`
}

// Examine decides about facts.
func Examine(facts *Facts, limits Limits) *Report {
	report := &Report{APIVersion: APIVersion, Kind: Kind, Installation: facts.Installation, ReadAt: facts.ReadAt, Findings: []Finding{}}
	for _, c := range checks {
		result := c.seen(facts)
		if result.Status != StatusSkipped {
			for _, finding := range c.decide(facts, limits) {
				finding.Check, finding.Runbook = c.id, runbooks+c.runbook
				report.Findings = append(report.Findings, finding)
			}
		}
		report.Checks = append(report.Checks, result)
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	report.summarize()
	return report
}

// seen returns what a check can see of the facts.
func (c check) seen(facts *Facts) CheckResult {
	result := CheckResult{ID: c.id, Status: StatusComplete}
	for i, area := range c.areas {
		gap := facts.Areas[area]
		if gap == nil || i >= c.needs || gap.Skipped == "" && !c.whole {
			continue
		}
		result.Status = StatusSkipped
		result.miss(gap.missing()...)
	}
	if result.Status == StatusSkipped {
		return result
	}
	for _, area := range c.areas {
		if gap := facts.Areas[area]; gap != nil {
			result.Status = StatusIncomplete
			result.miss(gap.missing()...)
		}
	}
	return result
}

// missing returns what is missing, as parts.
func (g *Gap) missing() []Unread {
	if g.Skipped != "" {
		return []Unread{{What: g.Skipped, Reason: g.Reason}}
	}
	return g.Unread
}

func (r *CheckResult) miss(missing ...Unread) {
	for _, unread := range missing {
		if text := unread.String(); !slices.Contains(r.Reasons, text) {
			r.missing, r.Reasons = append(r.missing, unread), append(r.Reasons, text)
		}
	}
}

// String returns what has not been read, and why.
func (u Unread) String() string {
	if u.Reason == "" {
		return u.What
	}
	return u.What + ": " + u.Reason
}

func (r *Report) summarize() {
	for _, finding := range r.Findings {
		switch finding.Severity {
		case SeverityError:
			r.Summary.Errors++
		case SeverityWarning:
			r.Summary.Warnings++
		case SeverityInfo:
			r.Summary.Infos++
		}
	}
	for _, check := range r.Checks {
		switch check.Status {
		case StatusIncomplete:
			r.Summary.Incomplete++
		case StatusSkipped:
			r.Summary.Skipped++
		case StatusComplete:
		}
	}
}

// withoutText returns a copy without what servers have written, for a bundle.
func (r *Report) withoutText() *Report {
	out := *r
	out.Findings = slices.Clone(r.Findings)
	for i := range out.Findings {
		out.Findings[i].Detail = ""
	}
	out.Checks = slices.Clone(r.Checks)
	for i := range out.Checks {
		out.Checks[i].Reasons = nil
		for _, unread := range r.Checks[i].missing {
			out.Checks[i].Reasons = append(out.Checks[i].Reasons, unread.What)
		}
	}
	return &out
}
