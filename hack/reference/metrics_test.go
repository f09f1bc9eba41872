package main

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

func loadTestdata(t *testing.T, name string) *packages.Package {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{Mode: metricsMode}, "./testdata/"+name)
	if err != nil || len(loaded) != 1 || len(loaded[0].Errors) > 0 {
		t.Fatalf("%v, %v", loaded, err)
	}
	return loaded[0]
}

func TestMetricsOf(t *testing.T) {
	got, err := metricsOf(loadTestdata(t, "metrics"))
	if err != nil {
		t.Fatal(err)
	}
	want := []metric{
		{"test_constant", "gauge", "By constants."},
		{"test_part_total", "counter", "By parts."},
		{"test_seconds", "histogram", "By a function."},
		{"test_first_count", "gauge", "By a function in a variable."},
		{"test_second_count", "gauge", "By a function in a variable."},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMetricsOfUnknownNames(t *testing.T) {
	if got, err := metricsOf(loadTestdata(t, "unknown")); err == nil || !strings.Contains(err.Error(), "unknown/metrics.go:10:") {
		t.Errorf("got %v, %v; want an error with the line", got, err)
	}
}
