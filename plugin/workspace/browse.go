package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// The terminal control sequences of the browser, which all common terminals support.
const (
	openScreen  = "\x1b[?1049h\x1b[?25l" // the alternate screen, without cursor
	closeScreen = "\x1b[?25h\x1b[?1049l"
	clearScreen = "\x1b[H\x1b[2J"
)

// browse runs --interactive: the user selects a workspace on the whole screen, which is then entered.
func (n *navigator) browse(ctx context.Context) error {
	installation, err := n.session.Installation()
	if err != nil {
		return err
	}
	in, inOK := n.In.(*os.File)
	out, outOK := n.Out.(*os.File)
	if !inOK || !outOK || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return errors.New("--interactive needs a terminal")
	}
	b := newBrowser(installation.Path, func(path logicalcluster.Path) ([]*node, error) {
		return readChildren(ctx, installation, path)
	})
	selected, err := runBrowser(in, out, b)
	if err != nil || selected.Empty() {
		return err
	}
	return n.enter(ctx, installation, selected, true)
}

// runBrowser runs the browser on a terminal and restores the screen afterwards. It returns the zero path when the user
// selects nothing.
func runBrowser(in, out *os.File, b *browser) (selected logicalcluster.Path, err error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return selected, fmt.Errorf("preparing the terminal: %w", err)
	}
	defer func() {
		_, _ = out.WriteString(closeScreen)
		err = errors.Join(err, term.Restore(int(in.Fd()), before))
	}()
	if _, err := out.WriteString(openScreen); err != nil {
		return selected, fmt.Errorf("writing to the terminal: %w", err)
	}
	input := make([]byte, 64)
	for {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil {
			return selected, fmt.Errorf("reading the size of the terminal: %w", err)
		}
		if width == 0 || height == 0 { // serial lines and some containers report no size
			width, height = 80, 24
		}
		if _, err := out.WriteString(clearScreen + strings.Join(b.view(width, height), "\r\n")); err != nil {
			return selected, fmt.Errorf("writing to the terminal: %w", err)
		}
		count, err := in.Read(input)
		if err != nil {
			return selected, fmt.Errorf("reading from the terminal: %w", err)
		}
		for _, pressed := range decodeKeys(string(input[:count])) {
			if path, done := b.press(pressed); done {
				return path, nil
			}
		}
	}
}

// keySequences lists the sequences that terminals send, longer ones before their prefixes.
var keySequences = []struct {
	bytes string
	key   key
}{
	{"\x1b[A", keyUp}, {"\x1bOA", keyUp}, {"k", keyUp},
	{"\x1b[B", keyDown}, {"\x1bOB", keyDown}, {"j", keyDown},
	{"\x1b[C", keyOpen}, {"\x1bOC", keyOpen}, {"l", keyOpen}, {" ", keyOpen},
	{"\x1b[D", keyClose}, {"\x1bOD", keyClose}, {"h", keyClose},
	{"\r", keySelect}, {"\n", keySelect},
	{"q", keyQuit}, {"\x03", keyQuit}, {"\x04", keyQuit},
}

// decodeKeys decodes the result of one read of the terminal. A lone escape quits; unknown sequences are skipped.
func decodeKeys(input string) []key {
	if input == "\x1b" {
		return []key{keyQuit}
	}
	var keys []key
next:
	for input != "" {
		for _, sequence := range keySequences {
			if rest, ok := strings.CutPrefix(input, sequence.bytes); ok {
				keys = append(keys, sequence.key)
				input = rest
				continue next
			}
		}
		if input[0] == '\x1b' {
			return keys // an unknown function key: its letters must not be read as commands
		}
		input = input[1:]
	}
	return keys
}
