package freeport

import (
	"net"
	"testing"
)

func TestListen(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		listener, err := Listen()
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		listener.Close() // the server has not started yet
		if seen[address] {
			t.Errorf("%s is given twice", address)
		}
		seen[address] = true
	}
}

func TestReserve(t *testing.T) {
	listener, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// A lock belongs to the open file, so that another process and another call are alike.
	if err := reserve(listener.Addr().(*net.TCPAddr).Port); err == nil {
		t.Error("a port is reserved twice")
	}
}
