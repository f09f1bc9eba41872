package main

import (
	"regexp"
	"slices"
	"strings"
)

// Bounds of what the report prints of a failure: readers see the end of CI's output only.
const (
	reasonLines   = 20
	messageLines  = 8 // of one message of a test
	reasonColumns = 200
)

var (
	// message is the first line of what a test has reported or logged; more lines of it are indented further.
	message = regexp.MustCompile(`^( *)[^\s:]+\.go:\d+: `)
	// ofTest is such a line of a test file. Helpers mark themselves with t.Helper; other files log the output of programs.
	ofTest = regexp.MustCompile(`^ *[^\s:]+_test\.go:\d+: `)
	// crash is what the runtime prints, before the stacks of goroutines.
	crash = regexp.MustCompile(`^(panic|fatal error|goleak): `)
	// log is a line of klog, of a logger of JSON, or of gRPC.
	log = regexp.MustCompile(`^([IWEF]\d{4} |\{|\d{4}/\d\d/\d\d )`)
)

// reasonOf returns the lines in the output of a test that say why it failed, without the logs of servers.
func reasonOf(output []string) []string {
	first := message
	if slices.ContainsFunc(output, ofTest.MatchString) {
		first = ofTest
	}
	var lines []string
	indent, more := "", 0
	for _, line := range output {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case crash.MatchString(line):
			indent, more = "\t", messageLines-1
			lines = append(lines, line)
		case first.MatchString(line):
			indent, more = message.FindStringSubmatch(line)[1]+" ", messageLines-1
			lines = append(lines, line)
		case more > 0 && strings.HasPrefix(line, indent) && !strings.HasPrefix(strings.TrimSpace(line), "--- "):
			more--
			lines = append(lines, line)
		default:
			more = 0
		}
	}
	return bounded(lines)
}

// reasonOfPackage is reasonOf for a package of which no test failed: it does not compile, or its process ended.
func reasonOfPackage(build, output []string) []string {
	if len(build) > 0 {
		return bounded(build)
	}
	if reason := reasonOf(output); len(reason) > 0 {
		return reason
	}
	return bounded(slices.DeleteFunc(slices.Clone(output), log.MatchString))
}

// bounded returns the last lines, shortened.
func bounded(lines []string) []string {
	var last []string
	for _, line := range lines[max(0, len(lines)-reasonLines):] {
		line = strings.TrimRight(line, "\r\n\t ")
		if runes := []rune(line); len(runes) > reasonColumns {
			line = string(runes[:reasonColumns-1]) + "…"
		}
		last = append(last, line)
	}
	return last
}
