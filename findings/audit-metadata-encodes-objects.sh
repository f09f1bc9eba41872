#!/usr/bin/env bash
# An API server encodes the object of each write for its audit log also where the policy logs metadata only, and drops the result.
#
# Versions: k8s.io/apiserver v0.37.2.
# Behaviour: at level Metadata, LogRequestObject needs the name, UID and version of an object, and encodes the whole object before it looks at the level.
#   If managed fields are left out, it also copies the object before. Only at level None it does nothing.
# Output seen: `level Metadata: 1048682 bytes of the object are encoded, 0 bytes are in the event`.
# What follows: a policy with Metadata costs processor time and memory by the size of what users write, and not by the number of requests. Writes of
#   large objects that nobody looks for belong into a rule with None.
#
# The script prints what it sees, and fails if the behaviour has changed. It needs Go.
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.org/finding

go 1.26.0

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
)
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/client-go/kubernetes/scheme"
)

// sink keeps the size of the objects of the last event.
type sink struct{ bytes int }

func (s *sink) ProcessEvents(events ...*auditinternal.Event) bool {
	s.bytes = 0
	if object := events[0].RequestObject; object != nil {
		s.bytes = len(object.Raw)
	}
	return true
}

// counter counts what is encoded.
type counter struct {
	runtime.NegotiatedSerializer
	bytes int
}

func (c *counter) EncoderForVersion(encoder runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	return counted{c.NegotiatedSerializer.EncoderForVersion(encoder, version), c}
}

type counted struct {
	runtime.Encoder
	counter *counter
}

func (c counted) Encode(object runtime.Object, w io.Writer) error {
	return c.Encoder.Encode(object, writer{w, c.counter})
}

type writer struct {
	io.Writer
	counter *counter
}

func (w writer) Write(p []byte) (int, error) {
	w.counter.bytes += len(p)
	return w.Writer.Write(p)
}

func run() error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Data: map[string]string{"text": strings.Repeat("x", 1<<20)}}
	for _, test := range []struct {
		level         auditinternal.Level
		encodes, logs bool
	}{{auditinternal.LevelNone, false, false}, {auditinternal.LevelMetadata, true, false}, {auditinternal.LevelRequest, true, true}} {
		received, encoded := &sink{}, &counter{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}
		ctx := audit.WithAuditContext(context.Background())
		event := audit.AuditContextFrom(ctx)
		if err := event.Init(audit.RequestAuditConfig{Level: test.level}, received); err != nil {
			return err
		}
		audit.LogRequestObject(ctx, object, corev1.SchemeGroupVersion, corev1.SchemeGroupVersion.WithResource("configmaps"), "", encoded)
		event.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
		fmt.Printf("level %s: %d bytes of the object are encoded, %d bytes are in the event\n", test.level, encoded.bytes, received.bytes)
		if encoded.bytes > 1<<20 != test.encodes || received.bytes > 1<<20 != test.logs {
			return errors.New("the behaviour has changed")
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
GO
go mod tidy >/dev/null 2>&1
go run .
