package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// writeBase writes users for programs that look up their own user, a /tmp, and the licenses.
func writeBase(tw *tar.Writer, notices []byte, created time.Time) error {
	for _, dir := range []struct {
		name string
		mode int64
	}{{"etc/", 0o755}, {"tmp/", 0o1777}} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode, ModTime: created}); err != nil {
			return err
		}
	}
	for _, file := range []struct{ name, content string }{
		{"etc/group", fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", User)},
		{"etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n", User, User)},
		{"licenses.txt", string(notices)},
	} {
		if file.content == "" {
			continue
		}
		if err := tw.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.content)), ModTime: created}); err != nil {
			return err
		}
		if _, err := io.WriteString(tw, file.content); err != nil {
			return err
		}
	}
	return nil
}

func writeBinary(tw *tar.Writer, path string, created time.Time) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	return writeFile(tw, path, &tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: info.Size(), ModTime: created})
}

// writeTree writes a directory: directories, regular files and symbolic links, with their modes.
func writeTree(tw *tar.Writer, root string, created time.Time) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return writeEntry(tw, path, name, entry, created)
	})
}

func writeEntry(tw *tar.Writer, path, name string, entry fs.DirEntry, created time.Time) error {
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
	header = &tar.Header{Typeflag: header.Typeflag, Name: name, Linkname: link, Mode: header.Mode, Size: header.Size, ModTime: created}
	if info.IsDir() {
		header.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return tw.WriteHeader(header)
	}
	return writeFile(tw, path, header)
}

func writeFile(tw *tar.Writer, path string, header *tar.Header) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(tw, file)
	return err
}
