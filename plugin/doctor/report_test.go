package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWhatIsNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		areas   map[Area]*Gap
		check   string
		status  CheckStatus
		reasons []string
	}{
		"everything is read":             {nil, "orphans", StatusComplete, nil},
		"a needed area is skipped":       {map[Area]*Gap{AreaServers: {Skipped: "no"}}, "etcd", StatusSkipped, []string{"no"}},
		"an additional area is skipped":  {map[Area]*Gap{AreaServers: {Skipped: "no", Reason: "refused"}}, "clocks", StatusIncomplete, []string{"no: refused"}},
		"a part is not read":             {map[Area]*Gap{AreaTree: {Unread: []Unread{{What: "a"}, {What: "b", Reason: "503"}}}}, "workspaces", StatusIncomplete, []string{"a", "b: 503"}},
		"a part of the whole is missing": {map[Area]*Gap{AreaTree: {Unread: []Unread{{What: "a"}}}}, "orphans", StatusSkipped, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := healthy(t)
			facts.Areas = tc.areas
			for _, got := range Examine(facts, testLimits).Checks {
				if got.ID == tc.check && (got.Status != tc.status || !slices.Equal(got.Reasons, tc.reasons)) {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
}

func TestTable(t *testing.T) {
	report := &Report{
		Findings: []Finding{{Check: "shards", Severity: SeverityError, Object: "shard alpha", Message: "fails", Detail: "a\x1b[31m\nb", NextStep: "Look"}},
		Checks:   []CheckResult{{ID: "etcd", Status: StatusSkipped, Reasons: []string{"no flag"}}, {ID: "moves", Status: StatusIncomplete, Reasons: []string{"a", "b", "c", "d", "e"}}},
	}
	report.summarize()
	var out bytes.Buffer
	if err := printReport(&out, report, ""); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"SEVERITY  CHECK   OBJECT       FINDING           NEXT STEP\n" +
		"Error     shards  shard alpha  fails (a\uFFFD[31m b)  Look\n" +
		"\n" +
		"CHECK  STATUS      REASON\n" +
		"etcd   Skipped     no flag\n" +
		"moves  Incomplete  a\n" +
		"moves  Incomplete  b\n" +
		"moves  Incomplete  c\n" +
		"moves  Incomplete  and 2 more\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if got := oneLine(strings.Repeat("ä", maxDetail+1)); got != strings.Repeat("ä", maxDetail)+"..." {
		t.Errorf("got %s", got)
	}
	if got := summaryLine(report); got != "1 errors, 0 warnings, 0 infos; 2 checks: 1 incomplete, 1 skipped" {
		t.Errorf("got %s", got)
	}
}

// TestJSONChangesNoTerminal: control characters and those that turn the direction of a text are escaped, and nothing is lost.
func TestJSONChangesNoTerminal(t *testing.T) {
	const hostile = "a\x1b[31m\u009b\u202eä\x7f\U000e0001"
	var out bytes.Buffer
	if err := printReport(&out, &Report{Findings: []Finding{{Detail: hostile}}}, "json"); err != nil || strings.ContainsAny(out.String(), "\x1b\u009b\u202e\x7f\U000e0001") {
		t.Errorf("%v: %q", err, out.String())
	}
	var got Report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Findings[0].Detail != hostile {
		t.Errorf("%v, %+v", err, got)
	}
}

func TestBundleHasNoText(t *testing.T) {
	facts := healthy(t)
	facts.Shards[0].Conditions[0] = Condition{Type: "Ready", Status: "False", Message: "secret"}
	facts.Areas = map[Area]*Gap{AreaMoves: {Skipped: "cannot be read", Reason: "secret"}, AreaTree: {Unread: []Unread{{What: "a shard", Reason: "secret"}}}}
	facts.Servers[0].Reachable, facts.Servers[0].Unreachable = false, "secret"
	report := Examine(facts, testLimits)
	for _, format := range []string{"json", "yaml"} {
		var complete bytes.Buffer
		if err := printReport(&complete, report, format); err != nil || strings.Count(complete.String(), "secret") < 4 {
			t.Errorf("%v: %s", err, complete.String())
		}
		var reduced bytes.Buffer
		if err := printReport(&reduced, report.withoutText(), format); err != nil || strings.Contains(reduced.String(), "secret") {
			t.Errorf("%v: %s", err, reduced.String())
		}
	}
}

func TestOptions(t *testing.T) {
	valid := options{maxWorkspaces: 1, timeout: time.Second, limits: testLimits}
	for name, tc := range map[string]struct {
		change func(*options)
		args   []string
		err    string
	}{
		"the defaults":               {func(*options) {}, nil, ""},
		"an argument":                {func(*options) {}, []string{"x"}, `got the argument "x", expected only flags`},
		"another format":             {func(o *options) { o.output = "xml" }, nil, `--output is "xml", expected json or yaml`},
		"deep without shards":        {func(o *options) { o.deep = true }, nil, "--deep reads all logical clusters, which only shards answer: set --shards-kubeconfig, too"},
		"deep with shards":           {func(o *options) { o.deep, o.shardsContext = true, "x" }, nil, ""},
		"a namespace without a host": {func(o *options) { o.hostNamespace = "x" }, nil, "--host-namespace has no effect without --host-kubeconfig or --host-context"},
		"no workspaces":              {func(o *options) { o.maxWorkspaces = 0 }, nil, "--max-workspaces must be at least 1, got 0"},
		"no time":                    {func(o *options) { o.timeout = 0 }, nil, "--timeout must be positive, got 0s"},
		"a negative grace":           {func(o *options) { o.limits.Grace = -1 }, nil, "--grace must not be negative, got -1ns"},
		"no age":                     {func(o *options) { o.limits.BackupAge = 0 }, nil, "--max-backup-age must be positive, got 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid
			tc.change(&o)
			got := ""
			if err := o.validate(tc.args); err != nil {
				got = err.Error()
			}
			if got != tc.err {
				t.Errorf("got %q", got)
			}
		})
	}
	var withCode *exitError
	if err := unable(errors.New("x")); !errors.As(err, &withCode) || withCode.ExitCode() != exitUnable {
		t.Errorf("got %v", err)
	}
}

// TestDocumentation compares the page about the command, and the runbooks of alerts, with the checks.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/doctor-checks.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, implemented []string
	for _, section := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, section[1])
	}
	for _, c := range checks {
		implemented = append(implemented, c.id)
		if c.runbook != "doctor-checks.md#"+c.id {
			t.Errorf("the runbook of %s is %s", c.id, c.runbook)
		}
	}
	if !slices.Equal(documented, implemented) {
		t.Errorf("docs/doctor-checks.md has %v, expected %v", documented, implemented)
	}
	alerts, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\(doctor-checks\.md#([a-z-]+)\)`).FindAllStringSubmatch(string(alerts), -1)
	for _, check := range named {
		if !slices.Contains(implemented, check[1]) {
			t.Errorf("a runbook in docs/alerts.md names the check %s, which does not exist", check[1])
		}
	}
	for _, section := range strings.Split(string(alerts), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		if !strings.Contains(text, "(doctor-checks.md#") && !strings.Contains(text, "No check of `kubectl kcp doctor` confirms it") {
			t.Errorf("the runbook of %s in docs/alerts.md neither names a check nor says that there is none", title)
		}
	}
}
