package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func TestTable(t *testing.T) {
	const list = `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[
		{"verb":"create","user":{"username":"alice"},"objectRef":{"resource":"configmaps","namespace":"default","name":"c","apiVersion":"v1"},"responseStatus":{"code":201},"stageTimestamp":"2026-11-30T12:00:00.000001Z"},
		{"verb":"patch","user":{"username":"alice"},"impersonatedUser":{"username":"bob"},"objectRef":{"resource":"apibindings","name":"b","apiGroup":"apis.kcp.io","subresource":"status"},"responseStatus":{"code":200},"stageTimestamp":"2026-11-30T12:00:01.000000Z"},
		{"verb":"get","user":{},"requestURI":"/version?\u001b[31m\ta","responseStatus":{"code":401},"stageTimestamp":"2026-11-30T12:00:02.000000Z"}]}`
	var events auditv1.EventList
	if err := json.Unmarshal([]byte(list), &events); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printTable(&out, events.Items); err != nil {
		t.Fatal(err)
	}
	const want = `TIME                   USER           VERB     RESOURCE                         NAME        CODE
2026-11-30T12:00:00Z   alice          create   configmaps                       default/c   201
2026-11-30T12:00:01Z   alice as bob   patch    apibindings.apis.kcp.io/status   b           200
2026-11-30T12:00:02Z   <unknown>      get      /version?\x1b[31m\ta                         401
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		options options
		want    string // the query, or the beginning of the error
	}{
		"the newest":           {options{limit: 10, output: "table"}, "limit=10"},
		"of the last hour":     {options{limit: 10, since: time.Hour, output: "json"}, "limit=10&since=2026-11-30T11%3A00%3A00Z"},
		"no events":            {options{output: "table"}, "--limit: got 0"},
		"a time in the future": {options{limit: 1, since: -time.Hour, output: "table"}, "--since: got -1h0m0s"},
		"an unknown format":    {options{limit: 1, output: "yaml"}, `--output: got "yaml"`},
	} {
		got := test.options.query(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)).Encode()
		if err := test.options.validate(); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
