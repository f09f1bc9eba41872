package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// checkMarkdown returns the links to files that do not exist, in the Markdown files below a folder. It skips folders that git ignores,
// and docs/, which is checked as part of the site.
func checkMarkdown(folder string) (problems []string, err error) {
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			name := entry.Name()
			if file != folder && (strings.HasPrefix(name, ".") || name == "bin" || name == "dist" || name == "docs" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != ".md" {
			return nil
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return ast.Walk(goldmark.DefaultParser().Parse(text.NewReader(source)), func(node ast.Node, entering bool) (ast.WalkStatus, error) {
			link, ok := node.(*ast.Link)
			if !ok || !entering {
				return ast.WalkContinue, nil
			}
			to, err := url.Parse(string(link.Destination))
			if err != nil || to.Scheme != "" || to.Path == "" {
				return ast.WalkContinue, err
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), to.Path)); errors.Is(err, fs.ErrNotExist) {
				problems = append(problems, fmt.Sprintf("%s: %s: the repository has no such file", file, link.Destination))
			}
			return ast.WalkContinue, nil
		})
	})
	return problems, err
}
