package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMoveContent runs the commands by which a page moves content between two installations.
func TestMoveContent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "coming-from-kcp-move.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Move the content\n")
	if !found {
		t.Fatal("the page has no such section")
	}
	blocks := parseBlocks(unindent(section))
	if len(blocks) != 5 {
		t.Fatalf("%d blocks are found", len(blocks))
	}
	setup, err := os.ReadFile(filepath.Join("testdata", "move-setup.sh"))
	if err != nil {
		t.Fatal(err)
	}
	check, err := os.ReadFile(filepath.Join("testdata", "move-check.sh"))
	if err != nil {
		t.Fatal(err)
	}
	// The servers of the setup end with the shell.
	output, err := runShell(t, newCheckout(t), string(setup)+buildScript(blocks)+string(check))
	if err != nil || !strings.HasSuffix(strings.TrimSpace(output), "moved") {
		t.Errorf("the shell ends with %v:\n%s", err, output)
	}
}

// unindent removes the indentation of list items, so that blocks within them are found.
func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "   ")
	}
	return strings.Join(lines, "\n")
}
