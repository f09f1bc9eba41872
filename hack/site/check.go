package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// reference is a reference of a page. Browsers fetch it automatically, unless it is a link.
type reference struct {
	url  string
	link bool
}

type page struct {
	anchors    map[string]bool
	references []reference
	undrawn    []string // languages of drawings that are shown as code
}

// drawings are languages of drawings, of which the layouts draw goat only.
var drawings = []string{"d2", "dot", "goat", "graphviz", "mermaid", "plantuml"}

// check returns the number of pages of a site, and its problems: links to pages, anchors and files of the repository that do not exist,
// files of other sites, pages that no other page links to, and drawings that are shown as code.
func check(site, repository string) (int, []string, error) {
	pages := map[string]*page{}
	err := filepath.WalkDir(site, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".html" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(site, file)
		if err != nil {
			return err
		}
		pages[filepath.ToSlash(name)], err = parse(text)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	var problems []string
	linked := map[string]bool{"index.html": true}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, to := range pages[name].references {
			target, problem := resolve(site, repository, pages, name, to)
			if problem != "" {
				problems = append(problems, fmt.Sprintf("%s: %s: %s", name, to.url, problem))
			}
			if target != name {
				linked[target] = true
			}
		}
		for _, language := range pages[name].undrawn {
			problems = append(problems, fmt.Sprintf("%s: a drawing in %s is shown as code; draw it as goat", name, language))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if !linked[name] {
			problems = append(problems, name+": no page links to it; data/navigation.yaml has the navigation")
		}
	}
	return len(pages), problems, nil
}

// parse returns the anchors and references of a page, and its drawings that are shown as code.
func parse(text []byte) (*page, error) {
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	p := &page{anchors: map[string]bool{}}
	for node := range root.Descendants() {
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				p.anchors[attribute.Val] = true
			case "href":
				p.references = append(p.references, reference{attribute.Val, node.Data == "a"})
			case "src", "srcset":
				p.references = append(p.references, reference{attribute.Val, false})
			case "class":
				if language, ok := strings.CutPrefix(attribute.Val, "language-"); ok && slices.Contains(drawings, language) {
					p.undrawn = append(p.undrawn, language)
				}
			}
		}
	}
	return p, nil
}

// resolve returns the file of the site to which a page refers, if it is one, and the problem of the reference.
func resolve(site, repository string, pages map[string]*page, from string, to reference) (string, string) {
	if to.link && strings.HasPrefix(to.url, repository) {
		file, _, _ := strings.Cut(strings.TrimPrefix(to.url, repository), "#")
		if _, err := os.Stat(filepath.Join(root, file)); errors.Is(err, fs.ErrNotExist) {
			return "", "the repository has no such file"
		}
		return "", ""
	}
	parsed, err := url.Parse(to.url)
	switch {
	case err != nil:
		return "", err.Error()
	case parsed.Scheme == "data", to.link && (parsed.Scheme == "https" || parsed.Hostname() == "localhost"):
		return "", ""
	case parsed.Scheme != "" || parsed.Host != "":
		return "", "the site loads only its own files, and links use https"
	}
	target := from
	if parsed.Path != "" {
		target = path.Join(path.Dir(from), parsed.Path)
	}
	if info, err := os.Stat(filepath.Join(site, target)); err != nil || info.IsDir() {
		return "", "the site has no such file"
	}
	if parsed.Fragment != "" && (pages[target] == nil || !pages[target].anchors[parsed.Fragment]) {
		return "", "the page has no such heading"
	}
	return target, ""
}
