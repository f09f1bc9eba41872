package monitoring

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

const metricsPage = "../../docs/reference/metrics.md"

// own matches the metrics that are not metrics of the libraries of Kubernetes.
var own = regexp.MustCompile(`^(atoll|kcp|proxy)_`)

// checkMetricsPage checks that docs/reference/metrics.md, which is generated from the code, has every metric of our own that Prometheus has
// found, with its type and help.
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
	if err != nil {
		t.Fatal(err)
	}
	for name, metadata := range answer.Data {
		if !own.MatchString(name) {
			continue
		}
		for _, of := range metadata { // servers that have a metric of the same name may describe it differently
			help := strings.TrimPrefix(of.Help, "[ALPHA] ") // added by the libraries of Kubernetes
			row := fmt.Sprintf("| `%s` | %s | %s |\n", name, of.Type, strings.ReplaceAll(help, "|", `\|`))
			if !strings.Contains(string(page), row) {
				t.Errorf("docs/reference/metrics.md, which make generate writes, does not have this row:\n%s", row)
			}
		}
	}
}
