package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const repository = "https://example.org/repository/"

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSite(t *testing.T) {
	out := t.TempDir()
	pages, err := build(out, repository, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if pages < 60 {
		t.Errorf("only %d pages", pages)
	}
	index, err := os.ReadFile(filepath.Join(out, "search-index.js"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{`"address":"user-guide.html#give-users-access"`, `"heading":"Give users access"`, `"address":"adr/index.html#`} {
		if !strings.Contains(string(index), entry) {
			t.Errorf("the index of the search lacks %s", entry)
		}
	}
	news, err := os.ReadFile(filepath.Join(out, "whats-new.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`href="./front-proxy.html#by-the-shared-index"`, `href="` + repository + `CHANGELOG.md"`, "Version v1.2.3"} {
		if !strings.Contains(string(news), want) {
			t.Errorf("the page of news lacks %s", want)
		}
	}
	// The build has checked that the targets exist.
	for _, want := range []struct{ page, link string }{
		{"user-guide.html", `href="./getting-started-apis.html"`},
		{"user-guide.html", `href="` + repository + `test/conformance/specs.yaml"`},
		{"workspace-limits.html", `href="./threat-model-load.html#requests-that-tenants-cause"`},
	} {
		page, err := os.ReadFile(filepath.Join(out, want.page))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), want.link) {
			t.Errorf("%s lacks %s", want.page, want.link)
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "architecture.html"))
	if err != nil {
		t.Fatal(err)
	}
	if drawing := `<div class="drawing"><svg role="img" aria-label="Folders in layers"`; !strings.Contains(string(page), drawing) {
		t.Errorf("the page about the architecture lacks %s", drawing)
	}
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct{ page, problem string }{
		"links that lead somewhere":              {`<h1 id=a></h1><a href=#a></a><a href=other.html#b></a><a href=https://example.com></a><a href=` + repository + `Makefile#L1></a><img src=data:,>`, ""},
		"a server of the reader":                 {`<a href=http://localhost:8443/ui/></a>`, ""},
		"a link without encryption":              {`<a href=http://example.com></a>`, "index.html: http://example.com: the site loads only its own files, and links use https"},
		"a page that does not exist":             {`<a href=none.md></a>`, "index.html: none.md: the site has no such file"},
		"a folder":                               {`<a href=folder/></a>`, "index.html: folder/: the site has no such file"},
		"a heading that does not exist":          {`<a href=other.html#c></a>`, "index.html: other.html#c: the page has no such heading"},
		"a heading that this page does not have": {`<a href=#c></a>`, "index.html: #c: the page has no such heading"},
		"a file that the repository lacks":       {`<a href=` + repository + `none.go></a>`, "index.html: " + repository + "none.go: the repository has no such file"},
		"a picture of another site":              {`<img src=https://example.com/a.png>`, "index.html: https://example.com/a.png: the site loads only its own files, and links use https"},
		"a script of any scheme":                 {`<script src=//example.com/a.js></script>`, "index.html: //example.com/a.js: the site loads only its own files, and links use https"},
		"a drawing that is shown as code":        {`<pre><code class="language-mermaid">`, "index.html: a drawing in mermaid is shown as code; draw it as goat"},
		"code that is no drawing":                {`<pre><code class="language-yaml">`, ""},
		"a style sheet from the repository":      {`<link href=` + repository + `Makefile>`, "index.html: " + repository + "Makefile: the site loads only its own files, and links use https"},
	} {
		t.Run(name, func(t *testing.T) {
			site := t.TempDir()
			write(t, filepath.Join(site, "index.html"), test.page)
			write(t, filepath.Join(site, "other.html"), `<h2 id=b></h2><a href=folder/page.html></a>`)
			write(t, filepath.Join(site, "folder", "page.html"), `<a href=../other.html></a>`)
			pages, problems, err := check(site, repository)
			if err != nil || pages != 3 {
				t.Fatalf("got %d pages, %v", pages, err)
			}
			if got := strings.Join(problems, "\n"); got != test.problem {
				t.Errorf("got %q, want %q", got, test.problem)
			}
		})
	}
}

func TestPageWithoutLinks(t *testing.T) {
	site := t.TempDir()
	write(t, filepath.Join(site, "index.html"), "")
	write(t, filepath.Join(site, "alone.html"), `<a href=alone.html></a>`)
	_, problems, err := check(site, repository)
	if err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], "alone.html: no page links to it") {
		t.Errorf("got %q, %v", problems, err)
	}
}

func TestMarkdown(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "README.md"), "[a](sub/page.md#x) [b](https://example.org/none) [c](#here) [d](sub/none.md)")
	write(t, filepath.Join(folder, "sub", "page.md"), "[up](../README.md)\n\n    [code](none.md)\n")
	write(t, filepath.Join(folder, "bin", "page.md"), "[ignored](none.md)")
	problems, err := checkMarkdown(folder)
	want := filepath.Join(folder, "README.md") + ": sub/none.md: the repository has no such file"
	if err != nil || len(problems) != 1 || problems[0] != want {
		t.Errorf("got %q, %v, want %q", problems, err, want)
	}
}

// TestPagesByTask checks that the first page contains each page of the navigation once. It does not count links to sections.
func TestPagesByTask(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first, links := read(filepath.Join(root, "docs", "README.md")), map[string]int{}
	for _, match := range regexp.MustCompile(`\]\(([^)#]+\.md)\)`).FindAllStringSubmatch(first, -1) {
		links[match[1]]++
	}
	for _, match := range regexp.MustCompile(`(?m)^  - /(.+\.md)$`).FindAllStringSubmatch(read(filepath.Join("data", "navigation.yaml")), -1) {
		if page := strings.NewReplacer("_index.md", "README.md", "whats-new.md", "../CHANGELOG.md").Replace(match[1]); page != "README.md" && links[page] != 1 {
			t.Errorf("docs/README.md has %d links to %s", links[page], page)
		}
	}
}
