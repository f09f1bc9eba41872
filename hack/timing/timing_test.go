package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// output is the shortened output of go test -json for two packages.
const output = `{"ImportPath":"example.org/c","Action":"build-output","Output":"c.go:3: undefined: x\n"}
{"Action":"start","Package":"example.org/a"}
{"Action":"run","Package":"example.org/a","Test":"TestGood"}
{"Action":"output","Package":"example.org/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"example.org/a","Test":"TestGood","Output":"    a_test.go:3: fine\n"}
{"Action":"pass","Package":"example.org/a","Test":"TestGood","Elapsed":1.5}
{"Action":"output","Package":"example.org/a","Output":"log of a server\n"}
{"Action":"output","Package":"example.org/a","Output":"PASS\n"}
{"Action":"output","Package":"example.org/a","Output":"ok  \texample.org/a\t1.6s\n"}
{"Action":"pass","Package":"example.org/a","Elapsed":1.6}
{"Action":"output","Package":"example.org/b","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"example.org/b","Test":"TestBad/part","Output":"    b_test.go:5: broken\n"}
{"Action":"fail","Package":"example.org/b","Test":"TestBad/part","Elapsed":0.1}
{"Action":"output","Package":"example.org/b","Test":"TestBad","Output":"--- FAIL: TestBad (0.20s)\n"}
{"Action":"fail","Package":"example.org/b","Test":"TestBad","Elapsed":0.2}
{"Action":"output","Package":"example.org/b","Output":"FAIL\texample.org/b\t0.3s\n"}
{"Action":"fail","Package":"example.org/b","Elapsed":0.3}
{"Action":"output","Package":"example.org/c","Output":"FAIL\texample.org/c [build failed]\n"}
{"Action":"fail","Package":"example.org/c","Elapsed":0,"FailedBuild":"example.org/c"}
`

func TestReader(t *testing.T) {
	for name, tc := range map[string]struct {
		verbose bool
		want    string
	}{
		"closing lines, and the output of what failed": {false, `c.go:3: undefined: x
ok  	example.org/a	1.6s
    b_test.go:5: broken
--- FAIL: TestBad (0.20s)
FAIL	example.org/b	0.3s
FAIL	example.org/c [build failed]
`},
		"all output with -v": {true, `c.go:3: undefined: x
=== RUN   TestGood
    a_test.go:3: fine
log of a server
PASS
ok  	example.org/a	1.6s
=== RUN   TestBad
    b_test.go:5: broken
--- FAIL: TestBad (0.20s)
FAIL	example.org/b	0.3s
FAIL	example.org/c [build failed]
`},
	} {
		t.Run(name, func(t *testing.T) {
			var printed strings.Builder
			var added []string
			r := reader{out: &printed, verbose: tc.verbose, packages: map[string]*results{}, builds: map[string][]string{}}
			if err := r.read(strings.NewReader(output), func(n note) error {
				added = append(added, strings.Join(append([]string{string(n.kind) + " " + n.name + " " + n.wall.String()}, n.reason...), "|"))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if printed.String() != tc.want {
				t.Errorf("printed\n%s\nwant\n%s", printed.String(), tc.want)
			}
			want := []string{
				"test TestGood in example.org/a 1.5s", "failure TestBad/part in example.org/b 100ms|    b_test.go:5: broken", "failure TestBad in example.org/b 200ms",
				"test TestBad in example.org/b 200ms", "failure example.org/c 0s|c.go:3: undefined: x",
			}
			if !slices.Equal(added, want) {
				t.Errorf("noted %q, want %q", added, want)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	long := strings.Repeat("ü", reasonColumns+1)
	var many []string
	for i := range reasonLines + 2 {
		many = append(many, fmt.Sprintf("    a_test.go:%d: no", i+1))
	}
	for name, tc := range map[string]struct{ output, want []string }{
		"messages of the test, without logs of servers and progress": {
			[]string{
				"I1129 19:31:08.527320   16697 server.go:579] stopping\n", "    a_test.go:5: broken:\n", "        because of this\n", `{"level":"warn"}` + "\n",
				"        not of the message\n", "W1129 19:31:08.527320   16697 server.go:579] late\n", "        a_test.go:7: deeper\n", "        --- FAIL: TestBad/part/of (0.10s)\n",
			},
			[]string{"    a_test.go:5: broken:", "        because of this", "        a_test.go:7: deeper"},
		},
		"the output of programs that a helper logs is not one": {
			[]string{"    a_test.go:5: broken\n", "    programs.go:123: end of the output of kcp:\n", "        a log\n"}, []string{"    a_test.go:5: broken"},
		},
		"a helper's message if there is no other":            {[]string{"    env.go:5: no certificate\n"}, []string{"    env.go:5: no certificate"}},
		"a message of many lines leaves room for others":     {append([]string{"    a_test.go:5: text:\n"}, slices.Repeat([]string{"        more\n"}, 50)...), append([]string{"    a_test.go:5: text:"}, slices.Repeat([]string{"        more"}, messageLines-1)...)},
		"a panic without stacks":                             {[]string{"panic: test timed out after 1s\n", "\trunning tests:\n", "\t\tTestIt (1s)\n", "\n", "goroutine 1 [running]:\n", "\ta.go:5\n"}, []string{"panic: test timed out after 1s", "\trunning tests:", "\t\tTestIt (1s)"}},
		"the last lines":                                     {many, many[2:]},
		"wide lines are shortened, between characters":       {[]string{"a_test.go:1: " + long}, []string{"a_test.go:1: " + long[:2*(reasonColumns-1-len("a_test.go:1: "))] + "…"}},
		"nothing for a test that failed because of subtests": {[]string{"--- FAIL: TestBad (0.20s)\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reasonOf(tc.output); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	for name, tc := range map[string]struct{ build, output, want []string }{
		"it does not compile": {[]string{"c.go:3: undefined: x\n"}, []string{"FAIL\tc [build failed]\n"}, []string{"c.go:3: undefined: x"}},
		"its process ended":   {nil, []string{"I1129 19:31:08.527320   16697 a.go:5] log\n", "panic: no\n", "goroutine 1 [running]:\n", "FAIL\tc\t1s\n"}, []string{"panic: no"}},
		"its main function":   {nil, []string{"I1129 19:31:08.527320   16697 a.go:5] log\n", "no etcd here\n", "FAIL\tc\t1s\n"}, []string{"no etcd here", "FAIL\tc\t1s"}},
	} {
		t.Run("package: "+name, func(t *testing.T) {
			if got := reasonOfPackage(tc.build, tc.output); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestBudgets(t *testing.T) {
	b, err := parseBudgets(strings.NewReader("# comment\n* 10\ntest/slow 100\n"))
	if err != nil {
		t.Fatal(err)
	}
	packages := []note{
		{name: "small", processor: 30 * time.Second}, {name: "test/slow", processor: 301 * time.Second}, {name: "other", processor: 31 * time.Second},
	}
	got := b.exceeded(packages)
	if len(got) != 2 || !strings.HasPrefix(got[0], "test/slow costs 301") || !strings.HasPrefix(got[1], "other costs 31") {
		t.Errorf("got %q", got)
	}
	for text, want := range map[string]string{"a": "line 1", "# x\na b": "line 2", "a 1 2": "line 1"} {
		if _, err := parseBudgets(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error of %s", text, err, want)
		}
	}
}

// TestBudgetsOfThisProject checks that the file can be read, and names packages that exist.
func TestBudgetsOfThisProject(t *testing.T) {
	file, err := os.Open("budgets.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b, err := parseBudgets(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.others == 0 {
		t.Error("there is no budget for packages that are not named")
	}
	for name := range b.byPackage {
		if _, err := os.Stat(filepath.Join("..", "..", name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCommands runs tests of a small module with the command, and prints their tables.
func TestCommands(t *testing.T) {
	directory := t.TempDir()
	for name, text := range map[string]string{
		"module/go.mod":         "module example.org/small\n\ngo 1.26\n",
		"module/in/it_test.go":  "package in\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) {}\n",
		"module/out/it_test.go": "package out\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) { t.Fatal(\"reason\\tof it\") }\n",
		"budgets":               "* 5\n",
		"none":                  "* 0\n",
	} {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command := filepath.Join(directory, "timing")
	run := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "ATOLL_TIMING="+filepath.Join(directory, "notes"), "GOFLAGS=", "GOWORK=off")
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	if text, err := run("go", "build", "-o", command, "."); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := run(command, "test", "--", "go", "-C", filepath.Join(directory, "module"), "test", "-vet=off", "./...")
	if err == nil {
		t.Error("the command succeeds although a test failed")
	}
	for _, want := range []string{"ok  \texample.org/small/in", "reason", "FAIL\texample.org/small/out"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
	text, err = run(command, "report", filepath.Join(directory, "budgets"))
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for _, want := range []string{"STEP", "the 2 of 2 that take longest", "TestIt in example.org/small/in", "FAILED\nTestIt in example.org/small/out\n      it_test.go:5: reason\tof it\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
	if text, err = run(command, "report", filepath.Join(directory, "none")); err == nil || !strings.Contains(text, "more than 3 times its budget of 0") {
		t.Errorf("got %v and %q, want a failure for an exceeded budget", err, text)
	}
}
