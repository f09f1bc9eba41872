package monitoring

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "add the metrics that docs/reference/metrics.md lacks")

const metricsPage = "../../docs/reference/metrics.md"

// own are the metrics that are not those of the libraries of Kubernetes.
var own = regexp.MustCompile(`^(atoll|kcp|proxy)_`)

// checkMetricsPage checks that docs/reference/metrics.md has every metric of our own that Prometheus has found, with its type and help.
func checkMetricsPage(t *testing.T, prometheus string) {
	t.Helper()
	response, err := http.Get(prometheus + "/api/v1/metadata")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Data map[string][]struct{ Type, Help string } `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil && !*update {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "| `") {
			rows[line] = true
		}
	}
	for name, metadata := range answer.Data {
		if !own.MatchString(name) {
			continue
		}
		for _, of := range metadata { // servers that have a metric of the same name may describe it differently
			row := fmt.Sprintf("| `%s` | %s | %s |", name, of.Type, strings.ReplaceAll(of.Help, "|", `\|`))
			if !rows[row] && !*update {
				t.Errorf("docs/reference/metrics.md does not have this row; run the test with -update:\n%s", row)
			}
			rows[row] = true
		}
	}
	if !*update {
		return
	}
	text := "# Metrics\n\nThe metrics of servers and operator that are not those of the libraries of Kubernetes. Written by the test of the dashboards (`go test ./test/monitoring -update`), which reads them from running servers.\n\n" +
		"| metric | type | meaning |\n| --- | --- | --- |\n" + strings.Join(slices.Sorted(maps.Keys(rows)), "\n") + "\n"
	if err := os.WriteFile(metricsPage, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
