package portal

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/test/chromium"
)

// testAccessibility checks every view in light and dark colours.
func (e *env) testAccessibility(t *testing.T) {
	page := e.browser.NewPage(t)
	for _, scheme := range []string{"light", "dark"} {
		page.Emulate("prefers-color-scheme: " + scheme)
		page.Open(e.at(tenant))
		page.WaitTitle("Sign in")
		page.Click(disclosure("Where do I find a token?"))
		page.CheckAccessibility("sign-in in " + scheme)
		signInWith(page, "ada-token")
		for _, view := range []struct {
			title    string
			segments []string
		}{
			{"Catalogue", nil},
			{"Cache", []string{"templates", "cache"}},
			{"Create Cache", []string{"templates", "cache", "new"}},
			{"Instances", []string{"instances"}},
			{"Cache mine", []string{"instances", "caches", "mine"}},
			{"Cache mine", []string{"instances", "caches", "mine?tab=yaml"}},
			{"Edit Cache mine", []string{"instances", "caches", "mine", "edit"}},
			{"Choose a workspace", []string{"workspaces"}},
		} {
			page.Open(e.at(append([]string{tenant}, view.segments...)...))
			page.WaitTitle(view.title)
			if view.title == "Create Cache" {
				page.Click(chromium.Named("Create Cache"))
				page.Wait("the summary", "document.activeElement?.className === 'summary'")
				page.Click(disclosure("What the server says"))
			}
			page.CheckAccessibility(view.title + " in " + scheme)
		}
		page.Open(e.at(tenant, "instances", "caches", "mine"))
		page.WaitTitle("Cache mine")
		page.Click(chromium.Named("Delete…"))
		page.CheckAccessibility("dialog in " + scheme)
		page.Press("\x1b")
		page.Wait("the focus to be where it was", "document.activeElement?.innerText === 'Delete…'")
		page.Click(chromium.Named("Sign out"))
	}
	e.quiet(t, page)
}

// testColours: the colours are those of the system unless the user has chosen others.
func (e *env) testColours(t *testing.T) {
	page := e.open(t, "ada-token", tenant)
	page.WaitTitle("Catalogue")
	background := func(what string, dark bool) {
		t.Helper()
		page.Wait(what, fmt.Sprintf("(getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 28)') === %v", dark))
	}
	background("light colours", false)
	page.Emulate("prefers-color-scheme: dark")
	background("dark colours of the system", true)
	page.Choose(chromium.Labelled("Theme"), "Light")
	background("light colours as chosen", false)
	page.Reload()
	page.WaitTitle("Catalogue")
	background("light colours after loading again", false)
	page.Choose(chromium.Labelled("Theme"), "System")
	background("dark colours of the system again", true)
	page.Emulate("prefers-reduced-motion: reduce")
	page.Wait("no transitions", "getComputedStyle(document.querySelector('button')).transitionDuration === '0s'")
	e.quiet(t, page)
}

// brokenWords is an expression for the words that span more than one line. A word that is too long for any line may be broken.
const brokenWords = `(() => {
	const broken = []
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	while (texts.nextNode()) {
		for (const { 0: word, index } of texts.currentNode.data.matchAll(/[^\s-]+/g)) {
			if (word.length > 24) continue
			const range = document.createRange()
			range.setStart(texts.currentNode, index)
			range.setEnd(texts.currentNode, index + word.length)
			const lines = new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom)))
			if (lines.size > 1) broken.push(word)
		}
	}
	return broken
})()`

// testSmallScreens: on a phone, nothing is wider than the screen, except elements that scroll by themselves, and words are not broken.
func (e *env) testSmallScreens(t *testing.T) {
	const long = "payments-of-the-northern-region-and-of-the-southern-region"
	e.createQueue(t, long)
	page := e.browser.NewPage(t)
	page.Size(360, 740)
	check := func(view string) {
		t.Helper()
		var width int
		page.Eval("document.documentElement.scrollWidth", &width)
		if width > 360 {
			t.Errorf("%s is %d pixels wide on a screen of 360", view, width)
		}
		var broken []string
		page.Eval(brokenWords, &broken)
		if len(broken) > 0 {
			t.Errorf("%s has broken words: %q", view, broken)
		}
	}
	page.Open(e.at(tenant))
	page.WaitTitle("Sign in")
	page.Click(disclosure("Where do I find a token?"))
	check("sign-in")
	signInWith(page, "ada-token")
	page.Wait("a heading", "document.querySelector('h1')?.innerText === 'Catalogue'")
	for _, view := range [][]string{
		nil, {"templates", "cache"}, {"templates", "cache", "new"}, {"instances"}, {"instances", "caches", "mine"}, {"instances", "queues", long}, {"workspaces"},
	} {
		page.Open(e.at(append([]string{tenant}, view...)...))
		page.Wait("a heading", "document.activeElement === document.querySelector('h1')")
		check(fmt.Sprint(view))
	}
	if err := e.resource("queues").Delete(t.Context(), long, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.quiet(t, page)
}

// testKeyboard signs in, creates, edits and deletes with the keyboard only.
func (e *env) testKeyboard(t *testing.T) {
	page := e.browser.NewPage(t)
	page.Open(e.at(tenant))
	page.WaitTitle("Sign in")
	page.TabTo("Token")
	page.Press("ada-token\r")
	page.WaitTitle("Catalogue")
	page.TabTo("Search the catalogue")
	page.Press("queue")
	page.WaitText("1 of 3 templates")
	page.TabTo("Message queue")
	page.Press("\r")
	page.WaitTitle("Message queue")
	page.TabTo("Create Queue")
	page.Press("\r")
	page.WaitTitle("Create Queue")
	page.TabTo("Name of the object")
	page.Press("typed")
	page.TabTo("durable")
	page.Press("t")
	page.Press("\r")
	page.TabTo("Create Queue")
	page.Press("\r")
	page.WaitTitle("Queue typed")
	got, err := e.resource("queues").Get(t.Context(), "typed", metav1.GetOptions{})
	if err != nil || !strings.Contains(fmt.Sprint(got.Object["spec"]), "durable:true") {
		t.Errorf("created %v, %v", got, err)
	}
	page.TabTo("Delete…")
	page.Press(" ")
	page.Wait("the dialog", "document.querySelector('dialog[open]')?.contains(document.activeElement)")
	for range 5 {
		page.Press("\t")
	}
	page.TabTo("Type typed to confirm")
	page.Press("typed")
	page.TabTo("Delete")
	page.Press("\r")
	page.WaitTitle("Instances")
	page.WaitText("Queue typed")
	page.Open(e.at(tenant))
	page.Reload()
	page.WaitTitle("Catalogue")
	page.Eval("document.activeElement.blur() ?? true", new(bool))
	page.TabTo("Skip to the content")
	page.Press("\r")
	page.Wait("the content to have the focus", "document.activeElement.id === 'main'")
	e.quiet(t, page)
}
