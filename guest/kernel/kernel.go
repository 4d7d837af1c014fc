// Package kernel is what all of the guest says to the kernel in the same way, and package syscall lacks. It does without fmt, net and
// reflect, for the binary's sake.
package kernel

import (
	"os"
	"syscall"
	"unsafe"
)

// PathOnly is O_PATH: what is opened is not opened for reading, and nobody is waited for.
const PathOnly = 0x200000

// Warn writes to the container's own log.
func Warn(text string) { os.Stderr.WriteString("agbox-init: " + text + "\n") }

// CloseAll closes descriptors; those below zero are none.
func CloseAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			syscall.Close(fd)
		}
	}
}

// Duplicate returns another descriptor of the same open file.
func Duplicate(fd int) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 3)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// Dial connects to a Unix socket.
func Dial(path string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Readlink returns where a link leads, of up to 4,096 bytes.
func Readlink(path string) (string, error) {
	buf := make([]byte, 4096)
	n, err := syscall.Readlink(path, buf)
	return string(buf[:max(n, 0)]), err
}

// Capable tells whether this process has a capability, of the first 32.
func Capable(number int) bool {
	header := struct{ version, pid uint32 }{version: 0x20080522}
	var data [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	return errno == 0 && data[0].effective>>number&1 == 1
}

// DialLoopback connects to a TCP port at 127.0.0.1, or at ::1. With SOCK_NONBLOCK among the flags it does not wait, and the
// connection may only have begun.
func DialLoopback(port uint16, v6 bool, flags int) (fd int, err error) {
	family := syscall.AF_INET
	var to syscall.Sockaddr = &syscall.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}
	if v6 {
		family, to = syscall.AF_INET6, &syscall.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}
	}
	fd, err = syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return -1, err
	}
	if err = syscall.Connect(fd, to); err != nil && err != syscall.EINPROGRESS {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}
