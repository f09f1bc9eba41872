package sinks

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	stockaudit "k8s.io/apiserver/pkg/audit"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
)

// uploadTimeout bounds an upload with its retries.
const uploadTimeout = time.Minute

// s3 stores each batch of events as an object with an event in each line.
type s3 struct {
	sink    string
	store   *objectstore.Store
	encoder runtime.Encoder
	// process and objects make names unique among replicas and restarts.
	process string
	objects atomic.Int64
}

func newS3(sink *Sink) (stockaudit.Backend, error) {
	cfg := sink.S3
	store, err := objectstore.Open(config.Store{
		EndpointURL: cfg.EndpointURL, Bucket: cfg.Bucket, Prefix: cfg.Prefix, Region: cfg.Region, AddressingStyle: cfg.AddressingStyle,
		EndpointCAFile: cfg.CAFile, AccessKeyIDFile: cfg.AccessKeyIDFile, SecretAccessKeyFile: cfg.SecretAccessKeyFile,
	})
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	sender := &s3{sink: sink.Name, store: store, encoder: stockaudit.Codecs.LegacyCodec(auditv1.SchemeGroupVersion), process: uuid.NewString()}
	return buffer(sink, sender), nil
}

// ProcessEvents implements audit.Sink.
func (s *s3) ProcessEvents(events ...*auditinternal.Event) bool {
	if err := s.upload(events); err != nil {
		stockaudit.HandlePluginError(s.String(), err, events...)
		return false
	}
	return true
}

func (s *s3) upload(events []*auditinternal.Event) error {
	var lines bytes.Buffer
	for _, event := range events {
		if err := s.encoder.Encode(event, &lines); err != nil { // it ends the line
			return fmt.Errorf("encoding an event for the sink %q: %w", s.sink, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), uploadTimeout)
	defer cancel()
	now := time.Now().UTC()
	name := fmt.Sprintf("%s-%s-%d.jsonl", now.Format("20060102T150405Z"), s.process, s.objects.Add(1))
	if err := s.store.PutBytes(ctx, path.Join(s.sink, now.Format("2006/01/02"), name), lines.Bytes()); err != nil {
		return fmt.Errorf("storing events of the sink %q: %w", s.sink, err)
	}
	return nil
}

// Run implements audit.Backend.
func (s *s3) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend. All events have been stored.
func (s *s3) Shutdown() { s.store.Close() }

// String implements audit.Backend.
func (s *s3) String() string { return "s3" }
