// Command layers writes the rules of depguard that order the folders of a tree, from hack/layers/layers.yaml, between two marks of a
// configuration of golangci-lint. It fails if a folder is not in the list.
//
//	layers ROOT
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	begin = "        # Generated from hack/layers/layers.yaml by `make generate`.\n"
	end   = "        # End of what is generated from hack/layers/layers.yaml.\n"
)

// tree is a top-level folder whose folders have an order.
type tree struct {
	Tree string `json:"tree"`
	// Folders are those of the tree; each imports only those before it.
	Folders []string `json:"folders"`
	// Above are folders that import the tree's own package.
	Above []string `json:"above"`
	// Except are paths below Folders without rules.
	Except []string `json:"except"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: layers ROOT")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	text, err := os.ReadFile(filepath.Join(root, "hack", "layers", "layers.yaml"))
	if err != nil {
		return err
	}
	var trees []tree
	if err := yaml.UnmarshalStrict(text, &trees); err != nil {
		return fmt.Errorf("layers.yaml: %w", err)
	}
	var rules strings.Builder
	for _, t := range trees {
		if err := t.check(root); err != nil {
			return err
		}
		rules.WriteString(t.rules())
	}
	path := filepath.Join(root, ".golangci.yml")
	config, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(config), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no marks around the generated rules", path)
	}
	return os.WriteFile(path, []byte(before+begin+rules.String()+end+after), 0o644)
}

// check compares the list with the folders of the tree.
func (t tree) check(root string) error {
	entries, err := os.ReadDir(filepath.Join(root, t.Tree))
	if err != nil {
		return err
	}
	listed := slices.Concat(t.Folders, t.Above)
	var found []string
	var wrong []error
	for _, entry := range entries {
		if !entry.IsDir() || entry.Name() == "testdata" {
			continue
		}
		found = append(found, entry.Name())
		if !slices.Contains(listed, entry.Name()) {
			wrong = append(wrong, fmt.Errorf("layers.yaml does not list %s/%s: add it above all folders that it imports", t.Tree, entry.Name()))
		}
	}
	for _, folder := range listed {
		if !slices.Contains(found, folder) {
			wrong = append(wrong, fmt.Errorf("layers.yaml lists %s/%s, which does not exist", t.Tree, folder))
		}
	}
	return errors.Join(wrong...)
}

// rules returns the rules of depguard: for each folder, those before it must not import it.
func (t tree) rules() string {
	var out strings.Builder
	var except strings.Builder
	for _, path := range t.Except {
		fmt.Fprintf(&except, ", %q", "!**/"+t.Tree+"/"+path+"/**")
	}
	rule := func(name, below, except, denied string) {
		name = strings.ReplaceAll(name, "/", "_")
		fmt.Fprintf(&out, "        %s:\n          files: [%q%s, \"!$test\"]\n          deny: %s\n", name, "**/"+t.Tree+"/{"+below+"}/**", except, denied)
	}
	const module = "github.com/atoll-dev/atoll/"
	for i, folder := range t.Folders[1:] {
		path := t.Tree + "/" + folder
		// Depguard compares prefixes: without $ and slash, the rule for shard is also one for shardclient.
		denied := fmt.Sprintf("[{pkg: %q, desc: %q}, {pkg: %q, desc: %[2]q}]", module+path+"$", path+" is above this folder", module+path+"/")
		rule("below-"+t.Tree+"-"+folder, strings.Join(t.Folders[:i+1], ","), except.String(), denied)
	}
	rule("below-"+t.Tree, strings.Join(t.Folders, ","), "", fmt.Sprintf("[{pkg: %q, desc: %q}]", module+t.Tree+"$", t.Tree+" assembles its folders"))
	return out.String()
}
