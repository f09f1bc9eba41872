package doctor

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// bundle is an archive with the report and the facts, without what servers have written, in a new file that only the user can read.
type bundle struct {
	file     *os.File
	complete bool
}

func createBundle(name string) (*bundle, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("writing the bundle: %w", err)
	}
	return &bundle{file: file}, nil
}

func (b *bundle) write(report *Report, facts *Facts) error {
	if err := archive(b.file, report, facts); err != nil {
		return fmt.Errorf("writing the bundle %s: %w", b.file.Name(), err)
	}
	b.complete = true
	return nil
}

// close removes a file that is not complete.
func (b *bundle) close() error {
	err := b.file.Close()
	if !b.complete || err != nil {
		err = errors.Join(err, os.Remove(b.file.Name()))
	}
	return err
}

func archive(out io.Writer, report *Report, facts *Facts) error {
	compressed := gzip.NewWriter(out)
	files := tar.NewWriter(compressed)
	for _, content := range []struct {
		name  string
		value any
	}{{"report.json", report.withoutText()}, {"facts.json", facts}} {
		text, err := json.MarshalIndent(content.value, "", "  ")
		if err != nil {
			return err
		}
		if err := files.WriteHeader(&tar.Header{Name: content.name, Mode: 0o600, Size: int64(len(text)), ModTime: facts.ReadAt}); err != nil {
			return err
		}
		if _, err := files.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(files.Close(), compressed.Close())
}
