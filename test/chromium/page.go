package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// waitTimeout bounds waits. It is long because tests share few cores.
const waitTimeout = 2 * time.Minute

// Page is a tab with its own storage and cookies.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
	requests []string
}

// NewPage opens a tab until the end of the test.
func (b *Browser) NewPage(t testing.TB) *Page {
	t.Helper()
	p := &Page{t: t}
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.observe))
	t.Cleanup(cancel)
	p.ctx = ctx
	// The tab lives as long as the context of the first call.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("Chromium: opening a tab: %v", err)
	}
	p.do(chromedp.EmulateViewport(1280, 900))
	return p
}

// On returns the page for another test, to which it reports.
func (p *Page) On(t testing.TB) *Page {
	p.t = t
	return p
}

func (p *Page) observe(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		text := event.ExceptionDetails.Text
		if exception := event.ExceptionDetails.Exception; exception != nil {
			text += " " + exception.Description
		}
		p.problems = append(p.problems, text)
	case *log.EventEntryAdded:
		// Responses with an error status are also entries; tests cause them intentionally.
		if event.Entry.Source != log.EntrySourceNetwork {
			p.problems = append(p.problems, event.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, event.Request.URL)
	}
}

// Problems returns uncaught errors and requests that the browser has refused, for example because of the Content-Security-Policy.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// Requests returns the URLs of all requests.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

func (p *Page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, waitTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("Chromium: %v", err)
	}
}

// Open loads a page, or navigates to another fragment of the current one.
func (p *Page) Open(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.do(chromedp.Reload())
}

func call[P, R any](p *Page, command cdp.Command[P, R], params P) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, waitTimeout)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		p.t.Fatalf("Chromium: %s: %v", command.Method, err)
	}
}

// Eval evaluates an expression, whose value may be a promise, and decodes it.
func (p *Page) Eval(expression string, into any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, waitTimeout)
	defer cancel()
	raw, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("evaluating %s: %v", expression, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		p.t.Fatalf("evaluating %s: %v: %s", expression, err, raw)
	}
}

// String evaluates an expression to a string.
func (p *Page) String(expression string) (text string) {
	p.t.Helper()
	p.Eval(expression, &text)
	return text
}

// Text returns the visible text of the page.
func (p *Page) Text() string {
	p.t.Helper()
	return p.String("document.body.innerText")
}

// Wait waits until an expression is true.
func (p *Page) Wait(what, expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, waitTimeout)
	defer cancel()
	for {
		var held bool
		raw, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte]("Boolean("+expression+")"))
		if err == nil {
			err = json.Unmarshal(raw, &held)
		}
		if held {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("waiting for %s: %s: %v\nproblems: %q\n%s", what, expression, err, p.Problems(), p.Text())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// WaitText waits until a text is visible.
func (p *Page) WaitText(text string) {
	p.t.Helper()
	p.Wait(fmt.Sprintf("the text %q", text), "document.body.innerText.includes("+quote(text)+")")
}

// WaitTitle waits until the heading of the view is a text and has the focus.
func (p *Page) WaitTitle(text string) {
	p.t.Helper()
	p.Wait(fmt.Sprintf("the heading %q", text), "document.querySelector('h1')?.innerText === "+quote(text)+" && document.activeElement === document.querySelector('h1')")
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // strings can be encoded
	return string(quoted)
}

// Labelled is an expression for the control with a label.
func Labelled(label string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('label')].filter((l) => l.innerText.replace(' (required)', '').trim() === %s).map((l) => l.control)[0]`, quote(label))
}

// Named is an expression for the button or link with a name, in the dialog if one is open.
func Named(name string) string {
	return fmt.Sprintf(`[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button, a')].find((e) => (e.ariaLabel ?? e.innerText).trim() === %s)`, quote(name))
}

// Click clicks on the element of an expression when it exists, does not move, is not covered and is not disabled. If the page moves it between
// the look and the click, the events reach nothing else, and Click looks again.
func (p *Page) Click(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, waitTimeout)
	defer cancel()
	for ctx.Err() == nil {
		p.waitClickable(expression)
		var at *struct{ X, Y float64 }
		p.Eval("("+aim+")(() => "+expression+")", &at)
		if at == nil {
			continue // it moves
		}
		p.do(chromedp.MouseClickXY(at.X, at.Y))
		missed, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("globalThis.aimed?.hit === false"))
		if err != nil || !missed {
			return // with an error, the click loads another page
		}
	}
	p.t.Fatalf("no click reaches %s\n%s", expression, p.Text())
}

// ClickOnce is Click for an element that may not move, not even because of the click.
func (p *Page) ClickOnce(expression string) {
	p.t.Helper()
	p.waitClickable(expression)
	var at struct{ X, Y float64 }
	p.Eval(`((e) => { const r = e.getClientRects()[0]; return {X: r.x + r.width / 2, Y: r.y + r.height / 2} })(`+expression+`)`, &at)
	p.do(chromedp.MouseClickXY(at.X, at.Y))
}

func (p *Page) waitClickable(expression string) {
	p.t.Helper()
	p.Wait("something to click on", `((e) => { if (!e || e.disabled) return false; e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0];
		if (!r) return false; const at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2); return e.contains(at) })(`+expression+`)`)
}

// aim is a function that returns where to click on an element, unless that changes from one frame to another. Until the click, it keeps the
// events of the mouse from other elements.
const aim = `async (find) => {
	const place = () => { const r = find()?.getClientRects()[0]; return r && {X: r.x + r.width / 2, Y: r.y + r.height / 2} }
	const before = place()
	await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))
	const now = place(), element = find()
	if (!before || !now || before.X !== now.X || before.Y !== now.Y) return null
	globalThis.aimed?.end()
	const types = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click']
	const aimed = globalThis.aimed = {hit: false, end: () => types.forEach((type) => window.removeEventListener(type, check, true))}
	const check = (event) => {
		const hit = element.contains(event.target)
		if (!hit) { event.stopImmediatePropagation(); event.preventDefault() }
		if (event.type === 'click') { aimed.hit = hit; aimed.end() }
	}
	types.forEach((type) => window.addEventListener(type, check, true))
	return now
}`

// Fill replaces the content of a text control.
func (p *Page) Fill(expression, text string) {
	p.t.Helper()
	p.Wait("a control", expression)
	var ignored bool
	p.Eval(`((e) => { e.focus(); e.select(); return true })(`+expression+`)`, &ignored)
	if text == "" {
		p.Press("\b")
		return
	}
	if strings.Contains(text, "\n") {
		call(p, input.InsertText, input.InsertTextParams{Text: text}) // like a paste from the clipboard
		return
	}
	p.Press(text)
}

// Choose chooses an option by its text.
func (p *Page) Choose(expression, option string) {
	p.t.Helper()
	p.Wait("the option "+option, `[...(`+expression+`)?.options ?? []].some((o) => o.text === `+quote(option)+`)`)
	var ignored bool
	p.Eval(`((e) => { e.value = [...e.options].find((o) => o.text === `+quote(option)+`).value; e.dispatchEvent(new Event('input', {bubbles: true}));
		e.dispatchEvent(new Event('change', {bubbles: true})); return true })(`+expression+`)`, &ignored)
}

// Press presses keys.
func (p *Page) Press(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys, options...))
}

// Focused returns the name of the element that has the focus.
func (p *Page) Focused() string {
	p.t.Helper()
	return p.String(`((e) => (e.ariaLabel || e.labels?.[0]?.innerText || e.innerText || e.id || e.tagName).replace(' (required)', '').trim())(document.activeElement)`)
}

// Emulate sets media features such as prefers-color-scheme.
func (p *Page) Emulate(features ...string) {
	p.t.Helper()
	params := emulation.SetEmulatedMediaParams{}
	for _, feature := range features {
		name, value, _ := strings.Cut(feature, ": ")
		params.Features = append(params.Features, &emulation.MediaFeature{Name: name, Value: value})
	}
	call(p, emulation.SetEmulatedMedia, params)
}

// Size sets the size of the viewport.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// Screenshot returns the viewport as PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	return png
}
