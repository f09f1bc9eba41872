// Package site reads the documentation site in a browser, from a folder and without a server.
package site

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/test/chromium"
	"github.com/atoll-dev/atoll/test/programs"
)

const sources = "../../../hack/site"

// build builds the site and returns the address of its folder.
func build(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	if err := programs.Build(t.Context(), sources, directory, "."); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(directory, "out")
	cmd := exec.CommandContext(t.Context(), filepath.Join(directory, "site"), "build", "--out", out)
	cmd.Dir = sources
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the site: %v\n%s", err, text)
	}
	return "file://" + out + "/"
}

// quiet checks that nothing went wrong in a page, and that it has read files of the site only.
func quiet(t *testing.T, page *chromium.Page, site string) {
	t.Helper()
	if problems := page.Problems(); len(problems) > 0 {
		t.Errorf("the browser reports %q", problems)
	}
	for _, request := range page.Requests() {
		if !strings.HasPrefix(request, site) && !strings.HasPrefix(request, "data:") {
			t.Errorf("a request to another site: %s", request)
		}
	}
}

func TestSite(t *testing.T) {
	site, browser := build(t), chromium.Start(t)
	t.Run("search with the keyboard only", func(t *testing.T) {
		page := browser.NewPage(t)
		page.Open(site + "adr/index.html")
		page.Press("/")
		page.Wait("the search to have the focus", "document.activeElement.id === 'query'")
		// The protocol of the browser types the character although the page has handled the key.
		page.Fill("document.querySelector('#query')", "no such words anywhere")
		page.WaitText("Nothing is found for “no such words anywhere”")
		page.Fill("document.querySelector('#query')", "workspace access rbac")
		page.WaitText("sections for “workspace access rbac”")
		page.CheckAccessibility("results")
		page.TabTo("User guide: Give users access")
		page.Press("\r")
		page.Wait("the section", "location.href.endsWith('/user-guide.html#give-users-access') && document.querySelector('#give-users-access').getBoundingClientRect().top >= 0")
		page.Wait("the script of the page to run", "!document.querySelector('form').hidden")
		page.Wait("a link at each heading", "[...document.querySelectorAll('main :is(h2, h3)')].every((heading) => heading.querySelector('.anchor').href.endsWith('#' + heading.id))")
		page.Fill("document.querySelector('#query')", "kubeconfig")
		page.WaitText("sections for “kubeconfig”, the best 30 are")
		page.Fill("document.querySelector('#query')", "external.port")
		page.WaitText("sections for “external.port”")
		page.Wait("the field in the reference", "[...document.querySelectorAll('#results li')].some((e) => e.querySelector('a').href.includes('/reference/operator.html#') && e.textContent.includes('spec.external.port'))")
		page.Press("\x1b")
		page.Wait("the results to be closed", "document.querySelector('#results').hidden && document.activeElement.id === 'query'")
		quiet(t, page, site)
	})
	t.Run("accessibility", func(t *testing.T) {
		page := browser.NewPage(t)
		for _, scheme := range []string{"light", "dark"} {
			page.Emulate("prefers-color-scheme: " + scheme)
			for _, name := range []string{"index", "getting-started", "publishing", "infrastructure-portal", "upgrades", "architecture", "reference/metrics", "adr/index"} {
				page.Open(site + name + ".html")
				page.CheckAccessibility(name + " in " + scheme)
			}
		}
		page.Open(site + "infrastructure-portal.html")
		page.Wait("the dark picture", "[...document.images].some((i) => { i.scrollIntoView(); return i.currentSrc.endsWith('portal-catalogue-dark.png') && i.naturalWidth > 0 })")
		page.TabTo("Skip to the content")
		page.Press("\r")
		page.Wait("the content to have the focus", "document.activeElement.id === 'main'")
		quiet(t, page, site)
	})
	t.Run("small screens", func(t *testing.T) {
		page := browser.NewPage(t)
		page.Size(360, 740)
		page.Open(site + "index.html")
		page.Wait("a closed navigation", "!document.querySelector('.pages').open")
		var addresses []string
		page.Eval("[...document.querySelectorAll('.pages a')].map((a) => a.href)", &addresses)
		for _, address := range addresses {
			page.Open(address)
			var width int
			page.Eval("document.documentElement.scrollWidth", &width)
			if width > 360 {
				t.Errorf("%s is %d pixels wide on a screen of 360", address, width)
			}
		}
		page.Open(site + "architecture.html")
		page.Wait("drawings that scroll and can have the focus", "[...document.querySelectorAll('.drawing')].every((box) => box.scrollWidth > box.clientWidth && box.tabIndex === 0 && box.querySelector('text'))")
		if len(addresses) < 25 {
			t.Errorf("the navigation has only %q", addresses)
		}
		quiet(t, page, site)
	})
}
