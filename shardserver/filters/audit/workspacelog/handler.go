package workspacelog

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Path is where a logical cluster serves its events.
const Path = "/audit"

// Numbers of events in a response.
const (
	defaultLimit = 500
	maxLimit     = 10000
)

// WithLog serves the events of single logical clusters at Path, except to requests for which isView returns true. It must run after
// authorization.
func (l *Log) WithLog(next http.Handler, isView func(*http.Request) bool, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, ok := logicalcluster.From(req.Context())
		if !ok || req.URL.Path != Path || isView(req) {
			next.ServeHTTP(w, req)
			return
		}
		list, err := l.serve(req, cluster)
		if err != nil {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, req)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.Header().Set("Cache-Control", "no-cache, private")
		_, _ = w.Write(list) // the client has gone
	})
}

func (l *Log) serve(req *http.Request, cluster logicalcluster.Name) ([]byte, error) {
	if req.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "audit"}, req.Method)
	}
	notFound := apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), cluster.String())
	if cluster.IsWildcard() {
		return nil, notFound
	}
	if err := l.cfg.Find(req.Context()); apierrors.IsNotFound(err) {
		return nil, notFound
	} else if err != nil {
		return nil, err
	}
	since, limit, err := parse(req.URL.Query())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return listOf(l.read(cluster, since, limit)), nil
}

// parse returns the parameters of a request: a time in microseconds, and a number of events.
func parse(query url.Values) (since int64, limit int, err error) {
	limit = defaultLimit
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxLimit {
			return 0, 0, fmt.Errorf("limit: got %q, want a number from 1 to %d", text, maxLimit)
		}
	}
	if text := query.Get("since"); text != "" {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return 0, 0, fmt.Errorf("since: got %q, want a time such as 2026-11-30T12:00:00Z", text)
		}
		since = at.UnixMicro()
	}
	return since, limit, nil
}

// listOf returns encoded events as an EventList of audit.k8s.io/v1 in JSON.
func listOf(records []record) []byte {
	var list bytes.Buffer
	list.WriteString(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`)
	for i, r := range records {
		if i > 0 {
			list.WriteByte(',')
		}
		list.Write(r.event)
	}
	list.WriteString("]}\n")
	return list.Bytes()
}
