package main

import (
	"strings"
	"testing"
	"time"
)

func TestReplaceBetweenMarkers(t *testing.T) {
	document := "# Performance\n" + beginMarker + "old\n" + endMarker + "after\n"
	content := renderTable([]figure{
		{Name: "rate", Value: 123.4, Unit: "1/s", Against: "etcd | 5 ms"},
		{Name: "ratio", Value: 0.12345, Unit: "", Against: "stock"},
		{Name: "keys", Value: 0, Unit: "keys", Against: "none"},
	}, "abc1234", time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC))
	got, err := replaceBetweenMarkers([]byte(document), content)
	if err != nil {
		t.Fatal(err)
	}
	want := `# Performance
<!-- figures: begin -->
Run of 2026-11-23 at commit abc1234.

| figure | value | unit | measured with, or against |
| --- | ---: | --- | --- |
| rate | 123 | 1/s | etcd \| 5 ms |
| ratio | 0.123 |  | stock |
| keys | 0 | keys | none |
<!-- figures: end -->
after
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReplaceWithoutMarkers(t *testing.T) {
	for name, document := range map[string]string{
		"no markers":    "# Performance\n",
		"no end marker": beginMarker + "old\n",
	} {
		if _, err := replaceBetweenMarkers([]byte(document), nil); err == nil || !strings.Contains(err.Error(), "no line") {
			t.Errorf("%s: got %v, want an error that names the missing line", name, err)
		}
	}
}
