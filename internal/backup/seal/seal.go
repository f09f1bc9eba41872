// Package seal is the form of the content of an object: compressed by zstd, then encrypted by age, so that `age --decrypt | zstd
// --decompress` opens it. It says where an object is damaged. Nothing here knows what the content is, or where objects are stored.
package seal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

const (
	// window bounds what compression of a stream needs in memory, and later its decompression.
	window = 1 << 20
	// chunk is the part of the plain text that age authenticates, and overhead what is added to each; before the first is a nonce.
	chunk, overhead, nonce = 64 << 10, 16, 16
	// maxHeader bounds the header of age: it grows with the number of recipients.
	maxHeader = 64 << 10
)

// ParseRecipients reads public keys of age.
func ParseRecipients(keys []string) ([]age.Recipient, error) {
	if len(keys) == 0 {
		return nil, errors.New("no recipients: want one public key of age or more (age-keygen makes one)")
	}
	var out []age.Recipient
	for i, key := range keys {
		recipient, err := age.ParseRecipients(bytes.NewBufferString(key))
		if err != nil || len(recipient) != 1 {
			// age quotes keys in errors; one that is pasted in its place may be an identity.
			return nil, fmt.Errorf("recipient %d is no public key of age: want age1..., as age-keygen -y prints it", i)
		}
		out = append(out, recipient[0])
	}
	// It refuses keys that cannot be used together.
	if _, err := age.Encrypt(io.Discard, out...); err != nil {
		return nil, fmt.Errorf("encrypting to all recipients together: %w", err)
	}
	return out, nil
}

// Writer seals what is written to it.
type Writer struct {
	zstd *zstd.Encoder
	age  io.WriteCloser
}

// NewWriter returns a writer that seals into another one, to recipients. It must be closed, which does not close the other one.
func NewWriter(into io.Writer, recipients []age.Recipient) (*Writer, error) {
	encrypted, err := age.Encrypt(into, recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypting: %w", err)
	}
	compressed, err := zstd.NewWriter(encrypted, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	return &Writer{compressed, encrypted}, nil
}

func (w *Writer) Write(p []byte) (int, error) { return w.zstd.Write(p) }

// Close ends the content. Without it, the object is truncated, which its reader reports.
func (w *Writer) Close() error { return errors.Join(w.zstd.Close(), w.age.Close()) }

// ErrDamaged marks the error of content that is not what was sealed.
var ErrDamaged = errors.New("damaged")

// Reader opens what a Writer sealed. It must be closed.
type Reader struct {
	zstd      *zstd.Decoder
	decrypted *decrypted
	source    *source
}

// NewReader opens an object for identities. Errors of the inner reader pass through, so that a broken connection is no damage.
func NewReader(object io.Reader, identities []age.Identity) (*Reader, error) {
	src := &source{inner: object}
	buffered := bufio.NewReaderSize(src, maxHeader)
	begin, err := headerLength(buffered)
	if err != nil {
		if src.err != nil && !errors.Is(src.err, io.EOF) {
			return nil, src.err
		}
		return nil, fmt.Errorf("%w in its header, the first %d bytes: %w", ErrDamaged, maxHeader, err)
	}
	plain, err := age.Decrypt(buffered, identities...)
	if err != nil {
		var noMatch *age.NoIdentityMatchError
		switch {
		case errors.As(err, &noMatch):
			return nil, fmt.Errorf("no identity opens its header, bytes 0 to %d: give the identity (private key) of one of its recipients; if you did, the header is damaged", begin)
		case src.err != nil && !errors.Is(src.err, io.EOF):
			return nil, src.err
		}
		return nil, fmt.Errorf("%w in its header, bytes 0 to %d: %w", ErrDamaged, begin+nonce, err)
	}
	out := &Reader{source: src, decrypted: &decrypted{inner: plain, begin: begin + nonce}}
	out.zstd, err = zstd.NewReader(out.decrypted, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	return out, nil
}

// headerLength returns the length of the header of age, which ends with a line of its own.
func headerLength(r *bufio.Reader) (int64, error) {
	const last = "\n---"
	for peeked := 4 << 10; ; peeked *= 2 {
		peeked = min(peeked, maxHeader)
		begin, err := r.Peek(peeked)
		if at := bytes.Index(begin, []byte(last)); at >= 0 {
			if end := bytes.IndexByte(begin[at+1:], '\n'); end >= 0 {
				return int64(at + 1 + end + 1), nil
			}
		}
		if err != nil || peeked == maxHeader {
			return 0, errors.New("it is no file of age, or ends there")
		}
	}
}

func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.zstd.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	switch {
	case r.source.err != nil && !errors.Is(r.source.err, io.EOF):
		return n, r.source.err
	case r.decrypted.err != nil && !errors.Is(r.decrypted.err, io.EOF):
		from := r.decrypted.begin + r.decrypted.read/chunk*(chunk+overhead)
		if to := from + chunk + overhead; to <= r.source.read {
			return n, fmt.Errorf("%w between bytes %d and %d: %w", ErrDamaged, from, to, r.decrypted.err)
		}
		return n, fmt.Errorf("%w or truncated between bytes %d and %d, its end: %w", ErrDamaged, from, r.source.read, r.decrypted.err)
	default:
		return n, fmt.Errorf("%w: what is encrypted in it, up to byte %d, is not compressed as a backup is: %w", ErrDamaged, r.source.read, err)
	}
}

// Close frees the decompressor.
func (r *Reader) Close() { r.zstd.Close() }

// source counts the bytes of an object, and keeps the error of its reader.
type source struct {
	inner io.Reader
	read  int64
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.inner.Read(p)
	s.read += int64(n)
	s.err = err
	return n, err
}

// decrypted counts the bytes that age has authenticated, and keeps its error.
type decrypted struct {
	inner       io.Reader
	begin, read int64
	err         error
}

func (d *decrypted) Read(p []byte) (int, error) {
	n, err := d.inner.Read(p)
	d.read += int64(n)
	d.err = err
	return n, err
}
