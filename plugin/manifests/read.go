// Package manifests reads and prints objects as YAML or JSON, for the commands that work on files.
package manifests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Stdin is the name of the file that stands for the standard input.
const Stdin = "-"

// Visitor receives one object, as YAML or JSON.
type Visitor func(kind metav1.TypeMeta, document []byte) error

// Name returns how messages name a file.
func Name(file string) string {
	if file == Stdin {
		return "standard input"
	}
	return file
}

// Read calls visit with every object of a file, or of stdin, including those in lists. Empty documents are skipped; an object
// without apiVersion and kind is an error, so that nothing in a file is ignored silently.
func Read(file string, stdin io.Reader, visit Visitor) error {
	in := stdin
	if file != Stdin {
		opened, err := os.Open(file)
		if err != nil {
			return err
		}
		defer opened.Close()
		in = opened
	}
	if err := readAll(in, visit); err != nil {
		return fmt.Errorf("reading %s: %w", Name(file), err)
	}
	return nil
}

func readAll(in io.Reader, visit Visitor) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(in))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = readDocument(document, visit)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
	}
}

func readDocument(document []byte, visit Visitor) error {
	var object struct {
		metav1.TypeMeta `json:",inline"`
		Items           []runtime.RawExtension `json:"items"`
	}
	if err := sigsyaml.Unmarshal(document, &object); err != nil {
		return err
	}
	switch {
	case object.TypeMeta == metav1.TypeMeta{}:
		return checkEmpty(document)
	case strings.HasSuffix(object.Kind, "List") && object.Items != nil:
		for i, item := range object.Items {
			if err := readDocument(item.Raw, visit); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		return nil
	}
	return visit(object.TypeMeta, document)
}

// checkEmpty accepts a document that contains only comments and space.
func checkEmpty(document []byte) error {
	var content any
	if err := sigsyaml.Unmarshal(document, &content); err != nil {
		return err
	}
	if content != nil {
		return errors.New("the object has no apiVersion and kind")
	}
	return nil
}
