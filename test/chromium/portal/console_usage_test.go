package portal

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// testConsoleUsage: the page has what the shard counts, when it is opened and when it is asked again.
func (e *env) testConsoleUsage(t *testing.T) {
	cluster := e.shard.NewWorkspace(t, "root", "used").Spec.Cluster
	config := e.shard.Admin(t)
	admin := e.shard.Client(t, config)
	var page *chromium.Page
	created := 0 // objects, and reviews that are not stored
	write := func(count int) {
		t.Helper()
		for range count {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "used-"}}
			if err := admin.Create(shardtesting.In(t.Context(), cluster), object); err != nil {
				t.Fatal(err)
			}
			created++
		}
		shardtesting.Eventually(t, "the writes to be counted", func(context.Context) error {
			if _, text := shardtesting.Send(t, shardtesting.At(config, cluster), http.MethodGet, "/metrics", ""); writes(text) != created {
				return fmt.Errorf("%d writes, usage: %s", created, text)
			}
			return nil
		})
	}
	// expect waits for a number of writes on the page.
	expect := func(count int) {
		t.Helper()
		page.Wait(fmt.Sprintf("%d writes", count), fmt.Sprintf("document.querySelector('[data-class=write] [data-label=Requests]')?.innerText === '%d'", count))
	}
	write(3)
	page = e.openConsole(t, "operator-token", "workspaces/root:used?tab=usage")
	page.WaitTitle("root:used")
	created++ // a review of the token, by the sign-in
	write(1)
	page.Click(chromium.Named("Refresh"))
	expect(created)
	for _, text := range []string{", in UTC", "Received", "Sent", "kubectl kcp usage :root:used --month 20"} {
		page.WaitText(text)
	}
	page.Wait("what is stored", "/[1-9]\\d* objects, .*KiB \\([\\d,]+ bytes\\)/.test(document.querySelector('[data-usage]').innerText)")
	write(2)
	page.TabTo("Refresh")
	page.Press("\r")
	expect(created)
	page.WaitText("Read at")
	e.quiet(t, page)

	// Access to a workspace is not the right to read its usage.
	page = e.openConsole(t, "victor-token", "workspaces/"+tenant+"?tab=usage")
	page.WaitTitle(tenant)
	page.WaitText("You may not read the usage of " + tenant)
	page.WaitText("the right to get the path /metrics in it")
	e.quiet(t, page)
}

// writes returns the sum of the writes in all months.
func writes(text string) (sum int) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, `atoll_usage_requests_total{class="write",`); ok {
			var count int
			_, value, _ := strings.Cut(rest, "} ")
			_, _ = fmt.Sscan(value, &count)
			sum += count
		}
	}
	return sum
}

// testConsoleUsageOfOthers: servers that are no shards, or older ones, may answer anything.
func (e *env) testConsoleUsageOfOthers(t *testing.T) {
	const metrics = "/clusters/" + tenant + "/metrics"
	t.Cleanup(func() { e.door.answerLike("", 0, "") })
	none := "The server of " + tenant + " does not count usage"
	page := e.openConsole(t, "operator-token", "workspaces/"+tenant+"?tab=usage")
	page.WaitTitle(tenant)
	page.WaitText("Requests by class")
	refresh := func(code int, text string) {
		t.Helper()
		e.door.answerLike(metrics, code, text)
		page.Click(chromium.Named("Refresh"))
	}
	refresh(http.StatusServiceUnavailable, `{"kind":"Status","code":503,"message":"the usage cannot be read now"}`)
	page.WaitText("The server is not available at the moment. Try again in a few seconds. Below is what was read last.")
	page.WaitText("Requests by class")

	for name, text := range map[string]string{
		"metrics of something else": "# TYPE up gauge\nup 1\n",
		"a page":                    "<!doctype html><title>Welcome</title>",
		"a month that is none":      "atoll_usage_requests_total{class=\"get\",month=\"2026-11; reboot\"} 1\n",
		"much":                      strings.Repeat("go_goroutines 12\n", 1<<15),
		"nothing":                   "",
	} {
		e.door.answerLike(metrics, http.StatusOK, text)
		page.Reload()
		page.WaitTitle(tenant)
		page.WaitText(none)
		if strings.Contains(page.Text(), "reboot") {
			t.Errorf("%s is in the text of the page", name)
		}
	}
	refresh(http.StatusNotImplemented, "not here")
	page.WaitText(none)

	// All that the text format has, of classes and months that this page does not know.
	refresh(http.StatusOK, strings.Join([]string{
		`# HELP atoll_usage_requests_total Requests.`,
		`atoll_usage_requests_total{class="get",month="2026-09"} 7`,
		`atoll_usage_requests_total { month = "2026-10" , class = "get" , } 1.5e3 1790000000000`,
		`atoll_usage_requests_total{class="of \"the\" future}\\",month="2026-10"} 20`,
		`atoll_usage_watch_seconds_total{month="2026-09"} 9e9`,
		`atoll_usage_watch_seconds_total{month="2026-10"} 86012.250`,
		`atoll_usage_received_bytes_total{month="2026-10"} 1`,
		`atoll_usage_sent_bytes_total{month="2026-10"} 9120033`,
		`something_else +Inf`, `something_else{} NaN`, "",
	}, "\n"))
	for _, text := range []string{"2026-10, in UTC", "1,520", "23 h 53 min", "1 byte", "8.7 MiB (9,120,033 bytes)", "Not counted: the shard counts one workspace at a time"} {
		page.WaitText(text)
	}
	page.Wait("the unknown class to count as another", "document.querySelector('[data-class=other] [data-label=Requests]').innerText === '20'")
	e.quiet(t, page)
}
