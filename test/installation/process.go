package installation

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// stopTimeout bounds how long a server may take to end after SIGTERM.
const stopTimeout = 30 * time.Second

// process is a running server. Its output goes to a file, which a failed test shows the end of.
type process struct {
	name   string
	log    string
	exited chan struct{}
}

func launch(t testing.TB, directory, program string, args ...string) *process {
	t.Helper()
	p := &process{name: filepath.Base(program), exited: make(chan struct{})}
	p.log = filepath.Join(directory, p.name+".log")
	output, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = directory, output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // a server that dies early is noticed by its clients
		output.Close()
		close(p.exited)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the output of %s:\n%s", p.name, p.tail())
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(stopTimeout):
			t.Errorf("%s did not end within %s after SIGTERM", p.name, stopTimeout)
			_ = cmd.Process.Kill()
			<-p.exited
		}
	})
	return p
}

func (p *process) tail() string {
	const enough = 6000
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-enough):])
}
