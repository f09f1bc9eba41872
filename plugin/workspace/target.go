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

// adminName is the name of the admin workspace. It is reserved here only: a workspace "admin" in root is ":root:admin".
const adminName = ":admin"

// move is the kind of change of the current workspace.
type move int

const (
	moveNone     move = iota // print only
	moveBack                 // exchange current and previous
	moveHome                 // the home workspace, or below it
	moveTreeRoot             // the first workspace of the current path
	moveAdmin                // the admin workspace of the installation
	movePath                 // any other workspace
)

// target is the meaning of an argument of "kubectl ws", before any request.
type target struct {
	move move
	// relative is the relative path from the home workspace (moveHome) or from the current one (movePath, unless absolute) to the
	// target. An empty way is the start itself.
	relative string
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
		return target{move: moveHome}
	case strings.HasPrefix(name, "~:"):
		return target{move: moveHome, relative: strings.TrimPrefix(name, "~:")}
	case name == ".":
		return target{move: moveNone}
	case name == "-":
		return target{move: moveBack}
	case name == ":":
		return target{move: moveTreeRoot}
	case name == adminName:
		return target{move: moveAdmin}
	case name == "root", strings.HasPrefix(name, "root:") && !short:
		return target{move: movePath, relative: name, absolute: true, note: rootNote}
	case strings.HasPrefix(name, ":"):
		return target{move: movePath, relative: strings.TrimPrefix(name, ":"), absolute: true}
	}
	return target{move: movePath, relative: name}
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

// resolve resolves a target from a workspace; arg is the argument as the user wrote it.
func (t target) resolve(from logicalcluster.Path, arg string) (logicalcluster.Path, error) {
	if t.move == moveHome && t.relative == "" {
		return from, nil
	}
	if t.absolute {
		from = logicalcluster.Path{}
	}
	path, err := connection.ResolvePath(from, t.relative)
	if errors.Is(err, connection.ErrInvalidSegment) {
		return path, fmt.Errorf("invalid workspace path: %s", arg)
	}
	return path, err
}
