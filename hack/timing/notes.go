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
	// reason are lines that say why a test failed.
	reason []string
}

// notes is the file.
type notes struct{ file string }

// add appends a note in one write, so that processes may add concurrently.
func (n notes) add(added note) error {
	file, err := os.OpenFile(n.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s\t%s\t%.3f\t%.3f", added.kind, added.name, added.wall.Seconds(), added.processor.Seconds())
	if len(added.reason) > 0 {
		line += "\t" + strconv.Quote(strings.Join(added.reason, "\n"))
	}
	_, err = file.WriteString(line + "\n")
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
		if len(fields) != 4 && len(fields) != 5 {
			return nil, fmt.Errorf("%s:%d: got %q, want kind, name, seconds, processor seconds and, of a failure, the reason", n.file, i+1, line)
		}
		wall, wallErr := seconds(fields[2])
		processor, processorErr := seconds(fields[3])
		if err := errors.Join(wallErr, processorErr); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", n.file, i+1, err)
		}
		read := note{kind: kind(fields[0]), name: fields[1], wall: wall, processor: processor}
		if len(fields) == 5 {
			reason, err := strconv.Unquote(fields[4])
			if err != nil {
				return nil, fmt.Errorf("%s:%d: got %q, want a quoted reason: %w", n.file, i+1, fields[4], err)
			}
			read.reason = strings.Split(reason, "\n")
		}
		all = append(all, read)
	}
	return all, nil
}

func seconds(text string) (time.Duration, error) {
	value, err := strconv.ParseFloat(text, 64)
	return time.Duration(value * float64(time.Second)), err
}
