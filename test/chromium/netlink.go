package chromium

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutNetlink names the variable with the path of the program that a test binary becomes, with its arguments and without netlink.
//
// By netlink Chromium learns that an address of the machine has come or gone, as addresses do when pods start beside the tests. It then ends
// all connections, those to this machine, too: pages stay empty, and requests of the portal fail that it may not repeat.
const withoutNetlink = "ATOLL_WITHOUT_NETLINK"

func init() {
	if program := os.Getenv(withoutNetlink); program != "" {
		fmt.Fprintf(os.Stderr, "running %s: %v\n", program, runWithoutNetlink(program))
		os.Exit(1)
	}
}

// runWithoutNetlink replaces this process by a program that can open no sockets of netlink. It returns only if that fails.
func runWithoutNetlink(program string) error {
	runtime.LockOSThread()                               // a filter is one of the thread, and the new process begins with that
	numberOfCall, firstArgument := uint32(0), uint32(16) // offsets in the data of a system call, whose low bytes are first
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberOfCall},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKET},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArgument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.AF_NETLINK},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	installed := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(installed)), 0, 0); err != nil {
		return fmt.Errorf("filtering system calls: %w", err)
	}
	if err := os.Unsetenv(withoutNetlink); err != nil {
		return err
	}
	return unix.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
}
