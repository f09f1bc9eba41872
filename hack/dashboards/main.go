// Command dashboards writes the dashboards of config/prometheus/dashboards for Grafana: one file for each kind of server. Panels are
// lists of queries; all other content is the same in all files.
//
//	dashboards config/prometheus/dashboards
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIRECTORY")
		os.Exit(2)
	}
	for _, d := range dashboards {
		text, err := json.MarshalIndent(render(d), "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], d.name+".json"), append(text, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "dashboards:", err)
			os.Exit(1)
		}
	}
}
