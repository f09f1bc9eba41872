package bench

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// chosen returns the names of the benchmarks that this program was asked to run, nothing if it was asked for more than
// that or for less.
func chosen() []string {
	pattern := flag.Lookup("test.bench").Value.String()
	if pattern == "" || flag.Lookup("test.list").Value.String() != "" {
		return nil
	}
	wanted, err := regexp.Compile(strings.Split(pattern, "/")[0])
	if err != nil {
		return nil // the testing package says so
	}
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	listed, err := exec.Command(program, "-test.list", "^Benchmark").Output()
	if err != nil {
		return nil
	}
	var names []string
	for _, name := range strings.Fields(string(listed)) {
		if wanted.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// runEach runs benchmarks in a process each, one after the other, with the flags of this one. It writes what they have
// recorded into one file, and returns the exit code of this process.
func runEach(names []string) (code int) {
	fail := func(name string, err error) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		code = 1
	}
	program, err := os.Executable()
	if err != nil {
		fail("finding this program", err)
		return code
	}
	directory, err := os.MkdirTemp("", "bench-figures-")
	if err != nil {
		fail("making a directory for figures", err)
		return code
	}
	defer os.RemoveAll(directory)
	all := []Figure{}
	for _, name := range names {
		file := filepath.Join(directory, name+".json")
		one := exec.Command(program, append(os.Args[1:], "-test.run=^$", "-test.bench=^"+name+"$")...)
		one.Env = append(os.Environ(), "BENCH_OUTPUT="+file)
		one.Stdout, one.Stderr = os.Stdout, os.Stderr
		if err := one.Run(); err != nil {
			fail(name, err)
		}
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it failed before it had measured anything, or measures nothing
		}
		var figures []Figure
		if err == nil {
			err = json.Unmarshal(raw, &figures)
		}
		if err != nil {
			fail(name, err)
		}
		all = append(all, figures...)
	}
	if err := write(all); err != nil {
		fail("writing the figures", err)
	}
	return code
}

// write keeps figures in the output file.
func write(all []Figure) error {
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(outputFile(), append(raw, '\n'), 0o644)
}
