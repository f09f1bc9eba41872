// Package example has what the analyzer reports, and what it must not.
package example

import "errors"

type closer interface{ Close() }

type file struct{ name string }

func (*file) Close() {}

func open(name string) (*file, error) {
	if name == "" {
		return nil, errors.New("no name")
	}
	return &file{name: name}, nil
}

func openInterface(name string) (closer, error) {
	return open(name) // want `the interface closer holds a nil \*file`
}

func openChecked(name string) (closer, error) {
	opened, err := open(name)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

func openConcrete(name string) (*file, error) { return open(name) }

type server struct {
	closer closer
	file   *file
}

func (s *server) assign(name string) (err error) {
	if s.closer, err = open(name); err != nil { // want `the interface closer holds a nil \*file`
		return err
	}
	s.closer, err = openInterface(name)
	if err != nil {
		return err
	}
	s.file, err = open(name)
	return err
}

func declare(name string) error {
	var c closer
	var err error
	c, err = open(name) // want `the interface closer holds a nil \*file`
	_, _ = c, err
	var _, other error = nil, nil
	return other
}

func literal() func(string) (closer, error) {
	return func(name string) (closer, error) {
		return open(name) // want `the interface closer holds a nil \*file`
	}
}
