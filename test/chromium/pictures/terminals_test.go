// Package pictures takes pictures of pages that other tests have written.
package pictures

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/test/chromium"
)

// TestTerminals takes a picture of each page in the directory GITOPS_PICTURES, as large as its content, and removes the page; see
// hack/gitops.sh.
func TestTerminals(t *testing.T) {
	directory := os.Getenv("GITOPS_PICTURES")
	if directory == "" {
		t.Skip("GITOPS_PICTURES is not set")
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(directory, "*.html"))
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) == 0 {
		t.Fatalf("%s has no pages", directory)
	}
	browser := chromium.Start(t)
	for _, file := range pages {
		page := browser.NewPage(t)
		page.Open("file://" + file)
		var size struct{ Width, Height int64 }
		page.Eval(`({Width: Math.ceil(document.body.offsetWidth), Height: Math.ceil(document.body.offsetHeight)})`, &size)
		page.Size(size.Width, size.Height)
		if err := os.WriteFile(strings.TrimSuffix(file, ".html")+".png", page.Screenshot(), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
