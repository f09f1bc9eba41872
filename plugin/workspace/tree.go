package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// treeParallelism bounds the requests in flight while a tree is read.
const treeParallelism = 8

// node is one workspace of a tree.
type node struct {
	path     logicalcluster.Path
	mount    bool // its content is outside of the installation: always a leaf
	phase    string
	lcPhase  string // of its LogicalCluster, only read for the wide tree
	url      string
	children []*node
	err      error // why the children could not be listed
}

// readTree reads the tree below a workspace level by level. Only failing to list the top is an error: a workspace
// further down that the user may not list is a leaf with the error.
func readTree(ctx context.Context, installation *connection.Installation, top logicalcluster.Path, wide bool) (*node, error) {
	tree := &node{path: top}
	for level := []*node{tree}; len(level) > 0; {
		var group errgroup.Group
		group.SetLimit(treeParallelism)
		for _, one := range level {
			group.Go(func() error {
				if one == tree || one.url != "" && !one.mount {
					one.children, one.err = readChildren(ctx, installation, one.path)
				}
				if wide {
					one.lcPhase = readLogicalClusterPhase(ctx, installation, one)
				}
				return nil
			})
		}
		_ = group.Wait() // errors are in the nodes
		if tree.err != nil {
			return nil, tree.err
		}
		var next []*node
		for _, one := range level {
			next = append(next, one.children...)
		}
		level = next
	}
	return tree, nil
}

// readChildren lists the child workspaces of a workspace by name, without those that are being deleted.
func readChildren(ctx context.Context, installation *connection.Installation, parent logicalcluster.Path) ([]*node, error) {
	objects, err := installation.List(ctx, parent, connection.Workspaces)
	if err != nil {
		return nil, err
	}
	var children []*node
	for i := range objects {
		object := &objects[i]
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		url, _, _ := unstructured.NestedString(object.Object, "spec", "URL")
		_, mount, _ := unstructured.NestedMap(object.Object, "spec", "mount")
		children = append(children, &node{path: parent.Join(object.GetName()), mount: mount, phase: getPhase(object), url: url})
	}
	slices.SortFunc(children, func(a, b *node) int { return strings.Compare(a.path.String(), b.path.String()) })
	return children, nil
}

func readLogicalClusterPhase(ctx context.Context, installation *connection.Installation, one *node) string {
	if one.mount {
		return ""
	}
	object, err := installation.Get(ctx, one.path, connection.LogicalClusters, "cluster")
	if err != nil {
		return "" // shown as Unknown: a user may be permitted to read a workspace and not its LogicalCluster
	}
	return getPhase(object)
}

// treeStyle selects how a tree is rendered.
type treeStyle struct {
	full bool // paths instead of names
	wide bool // with phases
}

// row is one line of a tree, without its columns.
type row struct {
	text string
	node *node
}

// render writes the tree, the top workspace below a dot as the "tree" command does with directories.
func (s treeStyle) render(out io.Writer, tree *node) error {
	rows := s.rows(nil, tree, "", true)
	width := 0
	for _, one := range rows {
		width = max(width, utf8.RuneCountInString(one.text))
	}
	var text strings.Builder
	text.WriteString(".\n")
	for _, one := range rows {
		text.WriteString(one.text)
		if s.wide {
			pad := strings.Repeat(" ", width-utf8.RuneCountInString(one.text))
			fmt.Fprintf(&text, "%s  %-16s lc=%s", pad, "ws="+orElse(one.node.phase, "-"), orElse(one.node.lcPhase, "Unknown"))
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func (s treeStyle) rows(rows []row, one *node, indent string, last bool) []row {
	branch, below := "├── ", "│   "
	if last {
		branch, below = "└── ", "    "
	}
	rows = append(rows, row{indent + branch + s.label(one), one})
	for i, child := range one.children {
		rows = s.rows(rows, child, indent+below, i == len(one.children)-1)
	}
	return rows
}

func (s treeStyle) label(one *node) string {
	label := one.path.Base()
	if s.full {
		label = one.path.String()
	}
	if one.mount {
		label += " [m]"
	}
	return label
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// failures returns the errors of the nodes, in the order of the tree.
func (n *node) failures() []error {
	var all []error
	if n.err != nil {
		all = append(all, n.err)
	}
	for _, child := range n.children {
		all = append(all, child.failures()...)
	}
	return all
}

// tree runs "kubectl ws tree".
func (n *navigator) tree(ctx context.Context, flags *connection.Flags, style treeStyle) error {
	installation, err := n.session.Installation()
	var foreign *connection.NotWorkspaceURLError
	if errors.As(err, &foreign) {
		_, err := fmt.Fprintf(n.Out, "current context URL %q does not point directly to a kcp workspace\n", foreign.URL)
		return err
	}
	if err != nil {
		return err
	}
	top, err := flags.Workspace(installation.Path)
	if err != nil {
		return err
	}
	tree, err := readTree(ctx, installation, top, style.wide)
	if err != nil {
		return err
	}
	if err := style.render(n.Out, tree); err != nil {
		return err
	}
	for _, failure := range tree.failures() {
		fmt.Fprintf(n.ErrOut, "Warning: %v\n", failure)
	}
	return nil
}
