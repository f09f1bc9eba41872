package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// kind is the subject of a note.
type kind string

const (
	kindStep    kind = "step"
	kindPackage kind = "package"
	kindTest    kind = "test"
	kindFailure kind = "failure" // of a test, or of a package without one that failed
)

// note is a line of the file: the cost of a step, package or test.
type note struct {
	kind kind
	name string
	wall time.Duration
	// processor is zero for tests, which share a process.
	processor time.Duration
}

// notes is the file.
type notes struct{ file string }

// add appends a note in one write, so that processes may add concurrently.
func (n notes) add(added note) error {
	file, err := os.OpenFile(n.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s\t%s\t%.3f\t%.3f\n", added.kind, added.name, added.wall.Seconds(), added.processor.Seconds())
	return errors.Join(err, file.Close())
}

// read returns all notes in their order; none if the file does not exist.
func (n notes) read() ([]note, error) {
	content, err := os.ReadFile(n.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []note
	for i, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
		if line == "" {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("%s:%d: got %q, want kind, name, seconds and processor seconds", n.file, i+1, line)
		}
		wall, wallErr := seconds(fields[2])
		processor, processorErr := seconds(fields[3])
		if err := errors.Join(wallErr, processorErr); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", n.file, i+1, err)
		}
		all = append(all, note{kind: kind(fields[0]), name: fields[1], wall: wall, processor: processor})
	}
	return all, nil
}

func seconds(text string) (time.Duration, error) {
	value, err := strconv.ParseFloat(text, 64)
	return time.Duration(value * float64(time.Second)), err
}
