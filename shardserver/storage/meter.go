package storage

import (
	"context"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Meter counts the bytes that are written to etcd.
type Meter interface {
	// AddWritten adds the size of an object as it is stored. It is called before each attempt to write, also one that
	// fails.
	AddWritten(cluster logicalcluster.Name, bytes int)
}

// WithMeter returns the transformer of a storage (nil for the default one) with a meter of what is written (nil for none).
// The transformer is the one extension point of the stock storage that receives the stored bytes.
func WithMeter(transformer value.Transformer, meter Meter) value.Transformer {
	if meter == nil {
		return transformer
	}
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	return &meteredTransformer{transformer, meter}
}

type meteredTransformer struct {
	value.Transformer
	meter Meter
}

// TransformToStorage implements value.Transformer.
func (m *meteredTransformer) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	stored, err := m.Transformer.TransformToStorage(ctx, data, dataCtx)
	if cluster, ok := logicalcluster.From(ctx); ok && err == nil {
		m.meter.AddWritten(cluster, len(stored))
	}
	return stored, err
}
