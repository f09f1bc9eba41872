package imagetar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// writeTree writes a directory: directories, regular files and symbolic links, with their modes.
func writeTree(w io.Writer, root string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return writeEntry(tw, path, name, entry)
	})
	return errors.Join(err, tw.Close())
}

func writeEntry(tw *tar.Writer, path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a directory, nor a file, nor a symbolic link", name)
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	mode := header.Mode
	*header = tar.Header{Typeflag: header.Typeflag, Name: name, Linkname: link, Mode: mode, Size: header.Size, ModTime: epoch}
	if info.IsDir() {
		header.Name += "/"
	}
	if err := tw.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(tw, file)
	return err
}
