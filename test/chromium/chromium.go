// Package chromium runs Debian's Chromium without a screen for tests of web pages, and controls it like a user: with clicks and keys.
package chromium

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/atoll-dev/atoll/test/debian"
)

// Browser is a running Chromium.
type Browser struct {
	ctx context.Context
}

// Start runs Chromium until the end of the test. It installs Chromium if it is missing.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := debian.Program(t, "chromium", "chromium", "fonts-dejavu-core")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(self), chromedp.Env(withoutNetlink+"="+path), chromedp.NoSandbox, chromedp.IgnoreCertErrors,
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		stop()
		t.Fatalf("starting Chromium: %v", err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("stopping Chromium: %v", err)
		}
	})
	return &Browser{ctx}
}
