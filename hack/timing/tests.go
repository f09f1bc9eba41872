package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// runTests runs a command line of go test with -json, which reports the duration of each test, and prints the output of go test without
// -json. The working directory is the one to which names of packages are relative.
func runTests(notes notes, args []string) error {
	at := slices.Index(args, "test")
	if at < 0 {
		return fmt.Errorf("got %q, want a command line of go test", args)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	cmd := exec.Command(args[0], slices.Insert(slices.Clone(args[1:]), at, "-json", "-exec", self+" exec")...)
	cmd.Env = append(os.Environ(), rootVariable+"="+root)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	reader := reader{out: os.Stdout, verbose: slices.Contains(args, "-v"), packages: map[string]*results{}, builds: map[string][]string{}}
	readErr := reader.read(output, notes.add)
	return errors.Join(cmd.Wait(), readErr)
}

// event is an event of go test -json (go doc test2json), with the fields that are used here.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string  // of output of a build
	FailedBuild                   string  // the ImportPath of a package that does not compile
	Elapsed                       float64 // seconds
}

// reader prints the output of go test: each package's closing line, and the output of failed tests; with -v all output.
type reader struct {
	out      io.Writer
	verbose  bool
	packages map[string]*results // that have started and not ended
	builds   map[string][]string // output of builds by their ImportPath
}

// results are the results of a package. They do not contain tests that have passed.
type results struct {
	order  []string            // of tests, "" for the package's own output
	output map[string][]string // lines by test
	failed bool                // a test has
}

func (r *reader) read(from io.Reader, add func(note) error) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				_, _ = r.out.Write(line) // not of go test
			} else if err := r.handle(e, add); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) handle(e event, add func(note) error) error {
	if e.Package == "" {
		fmt.Fprint(r.out, e.Output) // of a build
		if e.Output != "" {
			r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
		}
		return nil
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &results{output: map[string][]string{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		if r.verbose {
			fmt.Fprint(r.out, e.Output)
		}
		p.add(e.Test, e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			delete(r.packages, e.Package)
			if !r.verbose {
				p.print(r.out, e.Action == "fail")
			}
			if e.Action == "fail" && !p.failed { // it did not compile, exceeded its time, or ended
				return add(note{kind: kindFailure, name: e.Package, reason: reasonOfPackage(r.builds[e.FailedBuild], p.output[""])})
			}
			return nil
		}
		ended := note{kind: kindTest, name: e.Test + " in " + e.Package, wall: time.Duration(e.Elapsed * float64(time.Second))}
		if e.Action == "fail" {
			p.failed = true
			if err := add(note{kind: kindFailure, name: ended.name, wall: ended.wall, reason: reasonOf(p.output[e.Test])}); err != nil {
				return err
			}
		} else {
			delete(p.output, e.Test)
		}
		if !strings.Contains(e.Test, "/") {
			return add(ended)
		}
	}
	return nil
}

func (r *results) add(test, line string) {
	if strings.HasPrefix(line, "=== ") { // progress of a test
		return
	}
	if _, found := r.output[test]; !found {
		r.order = append(r.order, test)
	}
	r.output[test] = append(r.output[test], line)
}

// print prints the closing line of a package, and before it, if the package failed, the output of all tests that have not passed.
func (r *results) print(out io.Writer, failed bool) {
	own := r.output[""]
	if !failed {
		own = slices.DeleteFunc(slices.Clone(own), func(line string) bool { return !strings.HasPrefix(line, "ok ") && !strings.HasPrefix(line, "? ") })
	} else {
		for _, test := range r.order {
			if test != "" {
				fmt.Fprint(out, strings.Join(r.output[test], ""))
			}
		}
	}
	fmt.Fprint(out, strings.Join(own, ""))
}
