package portal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/atoll-dev/atoll/test/chromium"
)

// testPictures makes the pictures of docs/ in the directory PORTAL_PICTURES; see "make portal-pictures".
func (e *env) testPictures(t *testing.T) {
	directory := os.Getenv("PORTAL_PICTURES")
	if directory == "" {
		t.Skip("PORTAL_PICTURES is not set")
	}
	page := e.open(t, "ada-token", tenant)
	page.WaitTitle("Catalogue")
	page.Size(960, 600)
	for _, scheme := range []string{"light", "dark"} {
		page.Emulate("prefers-color-scheme: " + scheme)
		picture := func(name string) {
			t.Helper()
			page.Eval("document.activeElement.blur() ?? true", new(bool))
			if err := os.WriteFile(filepath.Join(directory, "portal-"+name+"-"+scheme+".png"), page.Screenshot(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		page.Open(e.at(tenant))
		page.WaitText("Keeps what is read often")
		picture("catalogue")
		page.Open(e.at(tenant, "templates", "cache", "new"))
		page.WaitTitle("Create Cache")
		page.Fill(chromium.Labelled("Name of the object"), "sessions")
		page.Fill(chromium.Labelled("owner"), "Team A")
		page.Fill(chromium.Labelled("replicas"), "9")
		page.Press("\t")
		page.WaitText("less than or equal to 5")
		page.Eval("(document.querySelector('h1').scrollIntoView(), true)", new(bool))
		picture("form")
		page.Click(chromium.Named("Cancel"))
		page.Open(e.at(tenant, "instances", "caches", "mine"))
		page.WaitText("mine.caches.example.org")
		picture("instance")
	}
}
