package forwarder

import (
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// Connect carries its input and output to and from the TCP port that args names, on the sandbox's loopback at 127.0.0.1 or else at
// ::1, and ends the process. The first byte of its output is 0 once it is connected, else the kernel's reason. The two ways end one
// after the other.
func Connect(args []string) {
	if len(args) != 1 {
		kernel.Warn("connect: name one port")
		os.Exit(2)
	}
	port, err := strconv.ParseUint(args[0], 10, 16)
	if err != nil {
		kernel.Warn("connect: " + args[0] + " is no port")
		os.Exit(2)
	}
	fd, err := kernel.DialLoopback(uint16(port), false, 0)
	if err != nil {
		fd, err = kernel.DialLoopback(uint16(port), true, 0)
	}
	errno, _ := err.(syscall.Errno)
	if _, failed := os.Stdout.Write([]byte{byte(errno)}); failed != nil || err != nil {
		os.Exit(1)
	}
	conn := os.NewFile(uintptr(fd), "port")
	go func() {
		if _, err := io.Copy(conn, os.Stdin); err != nil {
			os.Exit(1)
		}
		syscall.Shutdown(fd, syscall.SHUT_WR)
	}()
	if _, err := io.Copy(os.Stdout, conn); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
