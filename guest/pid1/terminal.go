package pid1

import (
	"strconv"
	"syscall"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// ptPeer is TIOCGPTPEER, which package syscall does not name: it opens the slave without a path, so
// that nothing that a command has mounted over /dev/pts is in the way.
const ptPeer = 0x5441

// openTerminals opens the directory of the sandbox's terminals before any command can put something else in its place; -1 when
// there is none.
func openTerminals() int {
	const devpts = 0x1cd1
	fd, err := syscall.Open("/dev/pts", kernel.PathOnly|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &fs); err != nil || fs.Type != devpts {
		syscall.Close(fd)
		return -1
	}
	return fd
}

// openTerminal makes a pseudo terminal whose slave is the account's. The master does not block.
func openTerminal(terminals int, size protocol.Size, a account.Account) (master, slave int, err error) {
	master, err = syscall.Openat(terminals, "ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	var locked int32
	err = control(master, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	if err == nil {
		err = setSize(master, size)
	}
	if err != nil {
		syscall.Close(master)
		return -1, -1, err
	}
	const flags = syscall.O_RDWR | syscall.O_NOCTTY | syscall.O_CLOEXEC
	fd, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(master), ptPeer, flags)
	slave = int(fd)
	if errno == syscall.ENOTTY { // gVisor opens it by its name only
		var number uint32
		if err = control(master, syscall.TIOCGPTN, unsafe.Pointer(&number)); err == nil {
			slave, err = syscall.Openat(terminals, strconv.Itoa(int(number)), flags, 0)
		}
	} else if errno != 0 {
		err = errno
	}
	if err != nil {
		syscall.Close(master)
		return -1, -1, err
	}
	if syscall.Fchown(slave, int(a.UID), -1) != nil { // its group is the one that devpts is mounted with
		syscall.Fchmod(slave, 0o666)
	}
	return master, slave, nil
}

func terminalFailure(err error) *failure {
	why := err.Error()
	switch err {
	case syscall.EBADF:
		why = "/dev/pts was not there when it started"
	case syscall.ENOSPC:
		why = "the sandbox has taken all that it may have (max of /dev/pts), or the host has given out all of its own (kernel.pty.max there, kernel.pty.nr of them are in use); end what holds many, or raise that"
	}
	return &failure{protocol.CodeNoTerminal, "exec: the sandbox has no terminal to give: " + why + "; without a terminal the command can run"}
}

func setSize(terminal int, size protocol.Size) error {
	window := struct{ rows, columns, x, y uint16 }{size.Rows, size.Columns, 0, 0}
	return control(terminal, syscall.TIOCSWINSZ, unsafe.Pointer(&window))
}

// endOfFile is what a person would type after the byte last, 0 for none, to end the input. In the
// middle of a line the first only hands the line to the reader.
func endOfFile(terminal int, last byte) []byte {
	var mode syscall.Termios
	if control(terminal, syscall.TCGETS, unsafe.Pointer(&mode)) != nil {
		return nil
	}
	key := mode.Cc[syscall.VEOF]
	if mode.Lflag&syscall.ICANON != 0 && last != 0 && last != '\n' {
		return []byte{key, key}
	}
	return []byte{key}
}

func control(fd int, request uintptr, argument unsafe.Pointer) error {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	if errno != 0 {
		return errno
	}
	return nil
}
