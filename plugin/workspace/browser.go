package workspace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// key is a key that has a meaning in the browser.
type key int

const (
	keyUp key = iota
	keyDown
	keyOpen
	keyClose
	keySelect
	keyQuit
)

// browser is the state of the full-screen browser: a tree that is loaded as it is opened, and a cursor. It does not
// depend on a terminal: press is its input, view its output.
type browser struct {
	load    func(logicalcluster.Path) ([]*node, error)
	top     *branch
	cursor  *branch
	message string
}

// branch is a workspace in the browser.
type branch struct {
	*node
	parent   *branch
	children []*branch
	loaded   bool
	open     bool
}

// newBrowser starts at the top of the tree, opened down to the current workspace. A current workspace that its parent
// does not list (or that may not be listed) is shown nevertheless.
func newBrowser(current logicalcluster.Path, load func(logicalcluster.Path) ([]*node, error)) *browser {
	b := &browser{load: load, top: &branch{node: &node{path: connection.TreeRoot(current)}}}
	b.cursor = b.top
	for _, name := range current.Segments()[len(b.top.path.Segments()):] {
		b.openBranch(b.cursor)
		path := b.cursor.path.Join(name)
		at := slices.IndexFunc(b.cursor.children, func(child *branch) bool { return child.path == path })
		if at < 0 {
			at = len(b.cursor.children)
			b.cursor.children = append(b.cursor.children, &branch{node: &node{path: path}, parent: b.cursor})
		}
		b.cursor = b.cursor.children[at]
	}
	b.openBranch(b.cursor)
	return b
}

func (b *browser) openBranch(one *branch) {
	one.open = true
	if one.loaded || one.mount {
		return
	}
	children, err := b.load(one.path)
	if err != nil {
		b.message = strings.Join(strings.Fields(err.Error()), " ") // one line, whatever a server returns
		return                                                     // the next attempt to open loads again
	}
	one.loaded = true
	for _, child := range children {
		known := func(old *branch) bool { return old.path == child.path }
		if !slices.ContainsFunc(one.children, known) {
			one.children = append(one.children, &branch{node: child, parent: one})
		}
	}
}

// press handles a key. It returns the selected workspace, if any, and whether to leave the browser.
func (b *browser) press(pressed key) (selected logicalcluster.Path, done bool) {
	b.message = ""
	switch pressed {
	case keyUp, keyDown:
		b.moveCursor(pressed)
	case keyOpen:
		b.openBranch(b.cursor)
	case keyClose:
		if b.cursor.open && len(b.cursor.children) > 0 {
			b.cursor.open = false
		} else if b.cursor.parent != nil {
			b.cursor = b.cursor.parent
		}
	case keySelect:
		return b.cursor.path, true
	case keyQuit:
		return logicalcluster.Path{}, true
	}
	return logicalcluster.Path{}, false
}

func (b *browser) moveCursor(direction key) {
	visible := b.visible(nil, b.top)
	at := slices.Index(visible, b.cursor)
	if direction == keyUp {
		at--
	} else {
		at++
	}
	b.cursor = visible[min(max(at, 0), len(visible)-1)]
}

func (b *browser) visible(all []*branch, one *branch) []*branch {
	all = append(all, one)
	if one.open {
		for _, child := range one.children {
			all = b.visible(all, child)
		}
	}
	return all
}

// view renders the browser into lines that fit a screen. The cursor's line is always among them.
func (b *browser) view(width, height int) []string {
	visible := b.visible(nil, b.top)
	room := max(height-3, 1) // title, message and help
	first := max(0, min(slices.Index(visible, b.cursor)-room/2, len(visible)-room))

	lines := []string{"Workspace " + b.cursor.path.String()}
	for _, one := range visible[first:min(first+room, len(visible))] {
		depth := len(one.path.Segments()) - len(b.top.path.Segments())
		lines = append(lines, fmt.Sprintf("%s %s%s %s", b.pointer(one), strings.Repeat("  ", depth), one.marker(), treeStyle{}.label(one.node)))
	}
	lines = append(lines, b.message, "up/down move   right open   left close   enter switch   q quit")
	for i, line := range lines {
		if runes := []rune(line); len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return lines
}

func (b *browser) pointer(one *branch) string {
	if one == b.cursor {
		return ">"
	}
	return " "
}

func (b *branch) marker() string {
	switch {
	case b.mount, b.loaded && len(b.children) == 0:
		return " "
	case b.open:
		return "-"
	}
	return "+"
}
