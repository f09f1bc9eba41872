package workspace

import (
	"errors"
	"fmt"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

const (
	rootNote = "Note: Using 'root:' to define an absolute path is no longer supported. Use ':root' instead, as in 'kubectl ws :root:org'."
	homeNote = "Note: 'kubectl ws' now matches 'cd' semantics: without an argument it goes to the home workspace. Use 'kubectl ws .' to print the current one."
)

// move is the kind of change of the current workspace.
type move int

const (
	stay   move = iota // print only
	goBack             // exchange current and previous
	goHome             // the home workspace, or below it
	goTop              // the first workspace of the current path
	goTo               // any other workspace
)

// target is the meaning of an argument of "kubectl ws", before any request.
type target struct {
	move move
	// way is the relative path from the home workspace (goHome) or from the current one (goTo, unless absolute) to the
	// target. An empty way is the start itself.
	way      string
	absolute bool
	// note is a hint for the user about the interpretation of the argument, or "".
	note string
}

// parseTarget parses an argument. homeDir is what a shell substitutes for "~" ("" if unknown). short is the --short
// flag: scripts that use it get the new, relative meaning of "root:..." arguments.
func parseTarget(arg, homeDir string, short bool) target {
	name := strings.ReplaceAll(unexpandHome(arg, homeDir), "/", ":")
	switch {
	case name == "~":
		return target{move: goHome}
	case strings.HasPrefix(name, "~:"):
		return target{move: goHome, way: strings.TrimPrefix(name, "~:")}
	case name == ".":
		return target{move: stay}
	case name == "-":
		return target{move: goBack}
	case name == ":":
		return target{move: goTop}
	case name == "root", strings.HasPrefix(name, "root:") && !short:
		return target{move: goTo, way: name, absolute: true, note: rootNote}
	case strings.HasPrefix(name, ":"):
		return target{move: goTo, way: strings.TrimPrefix(name, ":"), absolute: true}
	}
	return target{move: goTo, way: name}
}

// unexpandHome reverts the expansion of an unquoted "~" or "~/x" by a shell.
func unexpandHome(arg, homeDir string) string {
	if homeDir == "" || homeDir == "/" {
		return arg
	}
	rest, ok := strings.CutPrefix(arg, homeDir)
	if !ok || (rest != "" && rest[0] != '/' && rest[0] != ':') {
		return arg
	}
	return "~" + rest
}

// walk resolves a target from a workspace; arg is the argument as the user wrote it.
func (t target) walk(from logicalcluster.Path, arg string) (logicalcluster.Path, error) {
	if t.move == goHome && t.way == "" {
		return from, nil
	}
	if t.absolute {
		from = logicalcluster.Path{}
	}
	path, err := connection.Walk(from, t.way)
	if errors.Is(err, connection.ErrBadSegment) {
		return path, fmt.Errorf("invalid workspace path: %s", arg)
	}
	return path, err
}
