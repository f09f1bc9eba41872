package syncer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// jsonSerializer is a serializer that offers JSON only, in content negotiation.
type jsonSerializer struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s jsonSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	for _, info := range s.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			return []runtime.SerializerInfo{info}
		}
	}
	return nil
}

// streamWriter is an http.ResponseWriter that converts the body of a successful response while it is written. Other responses
// are passed on. Only convert writes to the client then, in a goroutine that ends with close.
type streamWriter struct {
	rw      http.ResponseWriter
	convert func(out io.Writer, in io.Reader) error

	status int
	pipe   *io.PipeWriter
	done   chan error
}

// serveStream serves a request with handler, and converts the response. It returns its status.
func serveStream(rw http.ResponseWriter, req *http.Request, handler http.Handler, convert func(out io.Writer, in io.Reader) error) (status int) {
	w := &streamWriter{rw: rw, convert: convert}
	completed := false
	defer func() {
		if err := w.close(completed); err != nil && completed && req.Context().Err() == nil {
			panic(http.ErrAbortHandler) // a response that is not complete must not look like one
		}
	}()
	handler.ServeHTTP(w, req)
	completed = true
	return w.status
}

// Header implements http.ResponseWriter.
func (w *streamWriter) Header() http.Header { return w.rw.Header() }

// WriteHeader implements http.ResponseWriter.
func (w *streamWriter) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	if status == http.StatusOK {
		w.Header().Del("Content-Length")
	}
	w.rw.WriteHeader(status)
	if status != http.StatusOK {
		return
	}
	var reader *io.PipeReader
	reader, w.pipe = io.Pipe()
	w.done = make(chan error, 1)
	go func() {
		err := recoverPanic(func() error { return w.convert(w.rw, reader) })
		reader.CloseWithError(errors.Join(io.ErrClosedPipe, err))
		w.done <- err
	}()
}

// Write implements http.ResponseWriter.
func (w *streamWriter) Write(part []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.pipe == nil {
		return w.rw.Write(part)
	}
	return w.pipe.Write(part)
}

// Flush implements http.Flusher. The converter flushes what it writes.
func (w *streamWriter) Flush() {
	if w.WriteHeader(http.StatusOK); w.pipe == nil {
		flush(w.rw)
	}
}

// CloseNotify implements http.CloseNotifier, which wrappers of upstream look for. Handlers use the context of the request.
func (w *streamWriter) CloseNotify() <-chan bool { return nil }

// close ends the conversion and returns its error.
func (w *streamWriter) close(completed bool) error {
	if w.pipe == nil {
		return nil
	}
	var end error // the end of the response
	if !completed {
		end = io.ErrUnexpectedEOF
	}
	w.pipe.CloseWithError(end)
	return <-w.done
}

// recoverPanic runs a function that is not on the goroutine of its request, where the handler chain would recover from a panic.
func recoverPanic(run func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
			if value != http.ErrAbortHandler {
				klog.ErrorS(err, "Panic while serving the virtual workspace of a sync agent", "stack", string(debug.Stack()))
			}
		}
	}()
	return run()
}

func flush(w io.Writer) {
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
}

// convertList copies a list. It renames the list, and items as item returns them; nil leaves one out.
func (t translation) convertList(out io.Writer, in io.Reader, filtered bool, item func(json.RawMessage) (json.RawMessage, error)) error {
	decoder := json.NewDecoder(in)
	if err := expectDelimiter(decoder, '{'); err != nil {
		return err
	}
	buffered := &bytes.Buffer{}
	separator := "{"
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		fmt.Fprintf(buffered, "%s%q:", separator, key)
		separator = ","
		if key == "items" {
			if _, err = buffered.WriteTo(out); err == nil {
				err = convertItems(out, decoder, item)
			}
		} else {
			err = t.convertListField(buffered, decoder, fmt.Sprint(key), filtered)
		}
		if err != nil {
			return err
		}
	}
	buffered.WriteString("}\n")
	_, err := buffered.WriteTo(out)
	return err
}

func (t translation) convertListField(out *bytes.Buffer, decoder *json.Decoder, key string, filtered bool) error {
	var value json.RawMessage
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	if renamed, ok := renameField(key, value, t.workspace, t.source); ok {
		value = renamed
	}
	if key == "metadata" && filtered { // the number of remaining items counts those that the filter leaves out
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(value, &fields); err != nil {
			return err
		}
		delete(fields, "remainingItemCount")
		var err error
		if value, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	out.Write(value)
	return nil
}

func convertItems(out io.Writer, decoder *json.Decoder, item func(json.RawMessage) (json.RawMessage, error)) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	if token == nil {
		_, err := io.WriteString(out, "null")
		return err
	}
	separator := "["
	for decoder.More() {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		converted, err := item(raw)
		if err != nil {
			return err
		}
		if converted == nil {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s%s", separator, converted); err != nil {
			return err
		}
		separator = ","
	}
	if err := expectDelimiter(decoder, ']'); err != nil {
		return err
	}
	end := "]"
	if separator == "[" {
		end = "[]"
	}
	_, err = io.WriteString(out, end)
	return err
}

func expectDelimiter(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("got %v in a list, want %v", token, want)
	}
	return err
}

// frame is one event of a watch.
type frame struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// readFrames calls a function for each event of a watch until the end of the stream.
func readFrames(in io.Reader, each func(frame) error) error {
	decoder := json.NewDecoder(in)
	for {
		var next frame
		err := decoder.Decode(&next)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(next)
		}
		if err != nil {
			return err
		}
	}
}

// frameWriter writes events of a watch to a client. It is safe for concurrent use.
type frameWriter struct {
	translation
	mu  sync.Mutex
	out io.Writer
}

func (w *frameWriter) write(next frame) error {
	object, err := w.toSource(next.Object)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(frame{next.Type, object})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.out.Write(append(encoded, '\n'))
	flush(w.out)
	return err
}
