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

// writeBundle writes an archive with the report and the facts, without what servers have written, to a new file that only the user can read.
func writeBundle(name string, report *Report, facts *Facts) (err error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(fmt.Errorf("writing the bundle %s: %w", name, err), os.Remove(name))
		}
	}()
	return archive(file, report, facts)
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
