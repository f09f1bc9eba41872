package image

import (
	"archive/tar"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// newLayer returns a layer whose content is written again for each read, so that binaries are not buffered in memory.
func newLayer(write func(*tar.Writer) error, compressed bool) (v1.Layer, error) {
	open := func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() {
			tw := tar.NewWriter(writer)
			err := write(tw)
			if err == nil { // otherwise Close would hide the error behind one about the incomplete file
				err = tw.Close()
			}
			writer.CloseWithError(err)
		}()
		return reader, nil
	}
	if compressed {
		return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	}
	content, err := open()
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(content)
	if err := errors.Join(err, content.Close()); err != nil {
		return nil, err
	}
	return partial.CompressedToLayer(plainLayer{open: open, digest: digest, size: size})
}

// plainLayer is a layer without compression, which tarball does not support.
type plainLayer struct {
	open   func() (io.ReadCloser, error)
	digest v1.Hash
	size   int64
}

func (l plainLayer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l plainLayer) DiffID() (v1.Hash, error)            { return l.digest, nil }
func (l plainLayer) Size() (int64, error)                { return l.size, nil }
func (l plainLayer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }
func (l plainLayer) Compressed() (io.ReadCloser, error)  { return l.open() }
