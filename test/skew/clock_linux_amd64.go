package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// vdsoFunction is the vDSO function that the Go runtime calls for the time: its arguments are a clock, and the address
// for seconds and nanoseconds.
const vdsoFunction = "__vdso_clock_gettime"

// instructions replace it. They call the kernel, and add the shift, which follows them, to the seconds of
// CLOCK_REALTIME, whose number is 0. They follow the C calling convention: all registers that they use are
// caller-saved.
var instructions = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228: the system call clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0e, // jne end
	0x85, 0xc0, // test eax, eax
	0x75, 0x0a, // jne end
	0x48, 0x8b, 0x15, 0x0a, 0x00, 0x00, 0x00, // mov rdx, [rip+10]: the shift
	0x48, 0x01, 0x16, // add [rsi], rdx
	0xc3, // end: ret
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
}

// clock is the wall clock of a running program.
type clock struct {
	pid int
	// shift is the address of the shift in seconds in the program: a signed word, aligned, so that it changes
	// atomically.
	shift int64
}

// start starts a program with its clock shifted. The calling thread must live as long as the program.
func start(name string, args []string, shift time.Duration) (*exec.Cmd, *clock, error) {
	program := exec.Command(name, args...)
	program.Stdin, program.Stdout, program.Stderr = os.Stdin, os.Stdout, os.Stderr
	program.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := program.Start(); err != nil {
		return nil, nil, err
	}
	clock, err := installClock(program.Process.Pid, shift)
	if err != nil {
		return nil, nil, errors.Join(err, program.Process.Kill())
	}
	return program, clock, nil
}

// installClock installs the clock in a program that has not run its first instruction, and detaches from it.
func installClock(pid int, shift time.Duration) (*clock, error) {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return nil, fmt.Errorf("waiting for the program to start: %w", err)
	}
	if !status.Stopped() {
		return nil, fmt.Errorf("the program does not stop at its start: wait status %#x", status)
	}
	at, err := findFunction(pid)
	if err != nil {
		return nil, err
	}
	if err := writeMemory(pid, at, instructions); err != nil {
		return nil, err
	}
	c := &clock{pid: pid, shift: at + int64(len(instructions))}
	if err := c.set(shift); err != nil {
		return nil, err
	}
	if err := syscall.PtraceDetach(pid); err != nil {
		return nil, fmt.Errorf("detaching: %w", err)
	}
	return c, nil
}

// set shifts the clock after the call.
func (c *clock) set(shift time.Duration) error {
	return writeMemory(c.pid, c.shift, binary.LittleEndian.AppendUint64(nil, uint64(shift/time.Second)))
}

// findFunction returns the address of the function in a process.
func findFunction(pid int) (int64, error) {
	begin, image, err := readVDSO(pid)
	if err != nil {
		return 0, fmt.Errorf("reading the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("reading the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("reading the symbols of the vDSO: %w", err)
	}
	const needed, alignment = 40, 8
	for _, symbol := range symbols {
		if symbol.Name != vdsoFunction {
			continue
		}
		if symbol.Size < needed || symbol.Value%alignment != 0 {
			return 0, fmt.Errorf("%s of this kernel has %d bytes at %#x, too few or not aligned", vdsoFunction, symbol.Size, symbol.Value)
		}
		return begin + int64(symbol.Value), nil // vDSOs are linked for address 0
	}
	return 0, fmt.Errorf("the vDSO of this kernel has no %s", vdsoFunction)
}

// readVDSO returns the address of the vDSO of a process, and a copy.
func readVDSO(pid int) (int64, []byte, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		var begin, end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &begin, &end); err != nil {
			return 0, nil, err
		}
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, nil, err
		}
		defer memory.Close()
		image := make([]byte, end-begin)
		_, err = memory.ReadAt(image, begin)
		return begin, image, err
	}
	return 0, nil, errors.New("the process has no vDSO")
}

func writeMemory(pid int, at int64, content []byte) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	if _, err := memory.WriteAt(content, at); err != nil {
		return fmt.Errorf("writing process memory: %w", err)
	}
	return nil
}
