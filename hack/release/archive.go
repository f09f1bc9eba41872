package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	path    string // of a file to copy, or
	content []byte
}

// writeArchive writes a .tar.gz whose bytes depend only on the entries and the time.
func writeArchive(path string, created time.Time, entries []entry) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	zip, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	tw := tar.NewWriter(zip)
	for _, e := range entries {
		if err = e.write(tw, created); err != nil {
			break
		}
	}
	return errors.Join(err, tw.Close(), zip.Close(), file.Close())
}

func (e entry) write(tw *tar.Writer, created time.Time) error {
	header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: created, Format: tar.FormatPAX}
	if e.path == "" {
		if err := tw.WriteHeader(header); err != nil {
			return err
		}
		_, err := tw.Write(e.content)
		return err
	}
	file, err := os.Open(e.path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(tw, file)
	return err
}

// filesOf lists the files below a directory, sorted, with names below a prefix. skip excludes files.
func filesOf(directory, prefix string, skip func(name string) bool) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil || skip(name) {
			return err
		}
		entries = append(entries, entry{name: filepath.ToSlash(filepath.Join(prefix, name)), mode: 0o644, path: path})
		return nil
	})
	return entries, err
}
