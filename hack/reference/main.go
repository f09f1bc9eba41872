// Command reference generates docs/reference from the code and the definitions: the kinds with their fields, the conditions of the
// operator's kinds with their reasons, and the metrics of servers.
//
//	reference docs/reference
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(directory string) error {
	pages, err := kindPages()
	if err != nil {
		return err
	}
	if pages["conditions.md"], err = conditionsPage(); err != nil {
		return err
	}
	if pages["metrics.md"], err = metricsPage(); err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
