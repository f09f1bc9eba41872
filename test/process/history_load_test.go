package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// kind is one kind of object that is written.
type kind struct{ path, apiVersion, kind string }

var kinds = []kind{
	{"/api/v1/namespaces/default/configmaps", "v1", "ConfigMap"},
	{"/apis/history.example.com/v1/namespaces/default/entries", "history.example.com/v1", "Entry"},
}

const entryDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"entries.history.example.com"},"spec":{"group":"history.example.com","scope":"Namespaced",
"names":{"plural":"entries","kind":"Entry"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"data":{"type":"object","additionalProperties":{"type":"string"}}}}}}]}}`

// endpoint is a workspace on a shard that is restarted repeatedly.
type endpoint struct {
	connect func() (*rest.Config, error)
	cluster string

	mu     sync.Mutex
	client *http.Client
	url    string
}

var errUnknown = errors.New("no response")

// statusError is a response with an error status.
type statusError struct {
	code int
	text string
}

func (s statusError) Error() string { return fmt.Sprintf("%d %s", s.code, s.text) }

// open sends a request. Its error is errUnknown when the outcome of the request is unknown.
func (e *endpoint) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	e.mu.Lock()
	if e.client == nil {
		config, err := e.connect()
		if err == nil {
			config.Timeout = 0
			e.url = config.Host
			e.client, err = rest.HTTPClientFor(config)
		}
		if err != nil {
			e.mu.Unlock()
			return nil, fmt.Errorf("%w: %w", errUnknown, err)
		}
	}
	client, url := e.client, e.url
	e.mu.Unlock()
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if body == nil {
		raw = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, url+"/clusters/"+e.cluster+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		e.disconnect(client)
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
	if response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests {
		return nil, fmt.Errorf("%w: %s %s", errUnknown, response.Status, text)
	}
	return nil, statusError{response.StatusCode, string(text)}
}

// disconnect makes the next request open a new connection: a restarted shard listens on another port.
func (e *endpoint) disconnect(client *http.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client == client {
		e.client = nil
	}
}

// object holds the fields of an object that the load reads.
type object struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Data map[string]string `json:"data"`
}

func (o object) version() int64 {
	n, _ := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
	return n
}

func (e *endpoint) do(ctx context.Context, method, path string, body any) (object, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	response, err := e.open(ctx, method, path, body)
	if err != nil {
		return object{}, err
	}
	defer response.Body.Close()
	var got object
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		return object{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	return got, nil
}

func (e *endpoint) define(t *testing.T) {
	t.Helper()
	if _, err := e.do(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json.RawMessage(entryDefinition)); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "entries are served", func(ctx context.Context) error {
		_, err := e.do(ctx, http.MethodGet, kinds[1].path, nil)
		return err
	})
}

// writeRecord is one value of a key at one version; the value 0 is none (deleted).
type writeRecord struct {
	value   int
	version int64 // 0 when the response does not contain it
}

// writer writes one key, one operation after the other. It is the only writer of the key, so that the expected state is
// known except for writes without a response.
type writer struct {
	*endpoint
	kind
	name         string
	acknowledged *atomic.Int64

	next               int
	last               writeRecord // the last acknowledged or read
	pendingValues      []int       // values that writes without a response may have left since then
	uncertain          bool        // an operation since then got no response or an error: read first
	acknowledgedWrites []writeRecord
	problems           []string
}

func (w *writer) String() string { return w.kind.kind + " " + w.cluster + "/" + w.name }

func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		var err error
		switch {
		case w.uncertain:
			err = w.read(ctx)
		case w.last.value == 0:
			err = w.create(ctx)
		case w.next%5 == 4:
			err = w.remove(ctx)
		default:
			err = w.update(ctx)
		}
		if err != nil {
			w.uncertain = true
			waitForRetry(ctx)
		}
	}
}

// waitForRetry delays the retries of a client whose server is down.
func waitForRetry(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

func (w *writer) body(version int64) map[string]any {
	metadata := map[string]any{"name": w.name}
	if version != 0 {
		metadata["resourceVersion"] = strconv.FormatInt(version, 10)
	}
	w.next++
	return map[string]any{"apiVersion": w.apiVersion, "kind": w.kind.kind, "metadata": metadata, "data": map[string]string{"value": strconv.Itoa(w.next)}}
}

func (w *writer) create(ctx context.Context) error {
	body := w.body(0)
	got, err := w.do(ctx, http.MethodPost, w.path, body)
	return w.recordOutcome(w.next, got, err)
}

func (w *writer) update(ctx context.Context) error {
	body := w.body(w.last.version)
	got, err := w.do(ctx, http.MethodPut, w.path+"/"+w.name, body)
	return w.recordOutcome(w.next, got, err)
}

func (w *writer) remove(ctx context.Context) error {
	w.next++
	_, err := w.do(ctx, http.MethodDelete, w.path+"/"+w.name, nil)
	return w.recordOutcome(0, object{}, err)
}

// recordOutcome records the outcome of a write.
func (w *writer) recordOutcome(value int, got object, err error) error {
	switch {
	case err == nil:
		w.last, w.pendingValues = writeRecord{value, got.version()}, nil
		w.acknowledgedWrites = append(w.acknowledgedWrites, w.last)
		w.acknowledged.Add(1)
	case errors.Is(err, errUnknown):
		w.pendingValues = append(w.pendingValues, value)
	default: // an error changes nothing, but shows that a write without a response was executed late
		if len(w.pendingValues) == 0 {
			w.problems = append(w.problems, fmt.Sprintf("after %+v a write of %d was refused, although the key has one writer: %v", w.last, value, err))
		}
	}
	return err
}

// read reads what is stored, and checks whether that is possible.
func (w *writer) read(ctx context.Context) error {
	got, err := w.do(ctx, http.MethodGet, w.path+"/"+w.name, nil)
	var statusErr statusError
	found := writeRecord{}
	switch {
	case err == nil:
		found.value, _ = strconv.Atoi(got.Data["value"])
		found.version = got.version()
	case errors.As(err, &statusErr) && statusErr.code == http.StatusNotFound:
	default:
		return err
	}
	possible := found.value == w.last.value
	for _, value := range w.pendingValues {
		possible = possible || found.value == value
	}
	if !possible {
		w.problems = append(w.problems, fmt.Sprintf("found %+v; acknowledged %+v, without a response %v", found, w.last, w.pendingValues))
	}
	// Writes without a response stay possible: one may be executed after this read. The next acknowledged write rules
	// them out, because it has a resourceVersion as precondition.
	w.pendingValues = append(w.pendingValues, w.last.value)
	w.last, w.uncertain = found, false
	return nil
}

// event is one line of a watch.
type event struct {
	kind, name string
	version    int64
	value      int
}

// gap is a range of versions that a list skipped because a watch could not resume.
type gap struct{ from, to int64 }

// watchRecorder keeps one watch of a kind in a workspace, as an informer does.
type watchRecorder struct {
	*endpoint
	kind
	startVersion int64

	mu          sync.Mutex
	lastVersion int64
	events      []event
	gaps        []gap
}

func (wr *watchRecorder) String() string { return wr.kind.kind + " " + wr.cluster }

func (wr *watchRecorder) version() int64 { wr.mu.Lock(); defer wr.mu.Unlock(); return wr.lastVersion }

var errTooOld = errors.New("the resource version is too old")

func (wr *watchRecorder) list(ctx context.Context) error {
	got, err := wr.do(ctx, http.MethodGet, wr.path, nil)
	if err != nil {
		return err
	}
	wr.mu.Lock()
	defer wr.mu.Unlock()
	if wr.startVersion == 0 {
		wr.startVersion = got.version()
	} else {
		wr.gaps = append(wr.gaps, gap{wr.lastVersion, got.version()})
	}
	wr.lastVersion = got.version()
	return nil
}

func (wr *watchRecorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := wr.watch(ctx)
		if errors.Is(err, errTooOld) {
			err = wr.list(ctx)
		}
		if err != nil {
			waitForRetry(ctx)
		}
	}
}

func (wr *watchRecorder) watch(ctx context.Context) error {
	response, err := wr.open(ctx, http.MethodGet, fmt.Sprintf("%s?watch=1&resourceVersion=%d", wr.path, wr.version()), nil)
	var statusErr statusError
	if errors.As(err, &statusErr) && statusErr.code == http.StatusGone {
		return errTooOld
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Type   string
			Object json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err // truncated by a kill
		}
		if line.Type == "ERROR" {
			if bytes.Contains(line.Object, []byte(`"code":410`)) {
				return errTooOld
			}
			return fmt.Errorf("the watch returned %s", line.Object)
		}
		var seen object
		if err := json.Unmarshal(line.Object, &seen); err != nil {
			return err
		}
		value, _ := strconv.Atoi(seen.Data["value"])
		wr.mu.Lock()
		wr.events = append(wr.events, event{line.Type, seen.Metadata.Name, seen.version(), value})
		wr.lastVersion = seen.version()
		wr.mu.Unlock()
	}
	return lines.Err()
}

func (wr *watchRecorder) inGap(version int64) bool {
	for _, g := range wr.gaps {
		if version > g.from && version <= g.to {
			return true
		}
	}
	return false
}

// check returns the problems in the sequence of events.
func (wr *watchRecorder) check() (problems []string) {
	var last int64
	kinds := map[string]event{}
	for _, e := range wr.events {
		if e.version <= last {
			problems = append(problems, fmt.Sprintf("%+v came after version %d", e, last))
		}
		before, known := kinds[e.name]
		exists := known && before.kind != "DELETED"
		if known && !wr.overlapsGap(before.version, e.version) && exists != (e.kind != "ADDED") {
			problems = append(problems, fmt.Sprintf("%+v follows %+v", e, before))
		}
		last, kinds[e.name] = e.version, e
	}
	return problems
}

// overlapsGap reports whether a list replaced the events between two versions.
func (wr *watchRecorder) overlapsGap(from, to int64) bool {
	for _, g := range wr.gaps {
		if g.from < to && g.to >= from {
			return true
		}
	}
	return false
}

// checkWrites returns which acknowledged writes of a key the watch did not deliver exactly once.
func (wr *watchRecorder) checkWrites(w *writer) (problems []string) {
	delivered := map[int64]int{}
	for _, e := range wr.events {
		if e.name == w.name {
			delivered[e.version]++
			if value, ok := w.valueAt(e.version); ok && e.kind != "DELETED" && value != e.value {
				problems = append(problems, fmt.Sprintf("%+v, but %d was written", e, value))
			}
		}
	}
	for _, done := range w.acknowledgedWrites {
		if done.version == 0 || done.version <= wr.startVersion || wr.inGap(done.version) {
			continue
		}
		if delivered[done.version] != 1 {
			problems = append(problems, fmt.Sprintf("delivered %d times: %+v", delivered[done.version], done))
		}
	}
	return problems
}

func (w *writer) valueAt(version int64) (value int, ok bool) {
	for _, done := range w.acknowledgedWrites {
		if done.version == version {
			return done.value, true
		}
	}
	return 0, false
}
