// Command timing records the cost of the steps and tests of a run and why tests failed, and prints both: .ci/run ends with that. It fails a run in
// which a package of tests costs far more than its budget (CONTRIBUTING.md, "What a test may cost").
//
// The notes are lines of tab-separated fields in the file that ATOLL_TIMING names: hack/step.sh records steps, this command packages and
// tests. Times are in seconds; processor time is that of a process and of all processes that it has waited for.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

const usage = `Usage:
  timing test -- go test ARGS...   run tests, note what they cost, print what go test prints
  timing exec BINARY ARGS...       what "timing test" has go test run binaries with
  timing report BUDGETS            print tables of the notes, and why tests failed; exit code 1 if a package exceeds its budget by far

ATOLL_TIMING names the file of notes.

Examples:
  ATOLL_TIMING=/tmp/notes timing test -- go test ./internal/...
  ATOLL_TIMING=/tmp/notes timing report hack/timing/budgets.txt
`

func main() {
	err := run(os.Args[1:])
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(max(1, exit.ExitCode())) // the command has printed the reason
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "timing:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("want a command\n" + usage)
	}
	file := os.Getenv("ATOLL_TIMING")
	if file == "" {
		return errors.New("ATOLL_TIMING is not set: it names the file of notes")
	}
	notes := notes{file: file}
	switch {
	case args[0] == "test" && args[1] == "--" && len(args) > 3:
		return runTests(notes, args[2:])
	case args[0] == "exec":
		return runBinary(notes, args[1:])
	case args[0] == "report" && len(args) == 2:
		return report(os.Stdout, notes, args[1])
	default:
		return fmt.Errorf("got %q, want a command\n%s", args, usage)
	}
}
