package usage

import (
	"strings"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const page = `# TYPE atoll_usage_requests_total counter
atoll_usage_requests_total{class="get",month="2026-10"} 5
atoll_usage_requests_total{class="get",month="2026-11"} 7
atoll_usage_requests_total{class="new",month="2026-11"} 1
atoll_usage_requests_total{class="write",month="2026-11"} 2
# TYPE atoll_usage_watch_seconds_total counter
atoll_usage_watch_seconds_total{month="2026-11"} 1.500
# TYPE atoll_usage_sent_bytes_total counter
atoll_usage_sent_bytes_total{month="2026-11"} 12345678901
# TYPE atoll_usage_stored_objects gauge
atoll_usage_stored_objects 4
# TYPE atoll_usage_stored_bytes gauge
atoll_usage_stored_bytes 400
`

func TestParseAndPrint(t *testing.T) {
	for _, c := range []struct {
		name, month, page, want, err string
	}{
		{"the current month", "2026-11", page, "2026-11,root:a,10,7,0,0,2,1,1.500,0,12345678901,4,400", ""},
		{"a past month has no sizes", "2026-10", page, "2026-10,root:a,5,5,0,0,0,0,0.000,0,0,,", ""},
		{"a month without requests", "2026-09", page, "2026-09,root:a,0,0,0,0,0,0,0.000,0,0,,", ""},
		{"a workspace without any request", "2026-11", "# TYPE atoll_usage_requests_total counter\natoll_usage_requests_total{class=\"get\",month=\"2026-11\"} 0\n", "2026-11,root:a,0,0,0,0,0,0,0.000,0,0,,", ""},
		{"another server", "2026-11", "# TYPE up gauge\nup 1\n", "", "does not serve usage"},
		{"no metrics", "2026-11", "<html>", "", "reading its /metrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := (&reader{month: c.month, current: "2026-11"}).parse([]byte(c.page))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if line := strings.Join(row{logicalcluster.MustParsePath("root:a"), got}.values(c.month), ","); line != c.want {
				t.Errorf("got  %s\nwant %s", line, c.want)
			}
		})
	}
}

func TestSums(t *testing.T) {
	known := func(gets float64) usage { return usage{gets: gets, stored: &stored{gets, gets}} }
	leaf := &node{path: logicalcluster.MustParsePath("root:a:b"), usage: known(4)}
	child := &node{path: logicalcluster.MustParsePath("root:a"), usage: known(2), children: []*node{leaf}}
	top := &node{path: logicalcluster.MustParsePath("root"), usage: known(1), children: []*node{child}}
	var lines []string
	for _, r := range top.sums() {
		lines = append(lines, strings.Join(r.values("m")[1:3], " "))
	}
	if got, want := strings.Join(lines, ", "), "root 7, root:a 6"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := top.sum().stored; got == nil || got.bytes != 7 {
		t.Errorf("got %v, want 7 bytes", got)
	}
	leaf.usage.stored = nil
	if got := top.sum().stored; got != nil {
		t.Errorf("got %v: one of the workspaces is not known", got)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []options{{month: "November", output: "csv"}, {month: "2026-13", output: "csv"}, {month: "2026-11", output: "yaml"}} {
		if err := o.complete(testNow); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	o := options{output: formatTable}
	if err := o.complete(testNow); err != nil || o.month != "2026-11" {
		t.Errorf("got %+v, %v", o, err)
	}
}

var testNow = time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)
