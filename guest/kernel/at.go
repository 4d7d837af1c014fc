package kernel

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Flags of the calls below, each under the kernel's name with AT_ before it.
const (
	emptyPath = 0x1000
	noFollow  = 0x100
	removeDir = 0x200
)

// Chown is for what was opened without being read.
func Chown(fd, uid, gid int) error { return syscall.Fchownat(fd, "", uid, gid, emptyPath) }

// SetTimeAt sets when what is open, or what has a name in it, was written; a link is not followed.
func SetTimeAt(fd int, name string, written syscall.Timespec) error {
	times := [2]syscall.Timespec{written, written}
	var path *byte
	flags := 0
	if name != "" {
		var err error
		if path, err = syscall.BytePtrFromString(name); err != nil {
			return err
		}
		flags = noFollow
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(fd), uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&times)), uintptr(flags), 0, 0)
	return errnoOrNil(errno)
}

// SymlinkAt makes a link in a directory.
func SymlinkAt(target string, fd int, name string) error {
	from, err := syscall.BytePtrFromString(target)
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall(syscall.SYS_SYMLINKAT, uintptr(unsafe.Pointer(from)), uintptr(fd), uintptr(unsafe.Pointer(to)))
	return errnoOrNil(errno)
}

// RenameNew is rename(2) that fails with EEXIST where something is at the destination.
func RenameNew(source, destination string) error {
	const (
		here         = ^uintptr(99) // AT_FDCWD
		keepExisting = 1            // RENAME_NOREPLACE
	)
	number := uintptr(276) // renameat2, as most machines have it
	if runtime.GOARCH == "amd64" {
		number = 316
	}
	from, err := syscall.BytePtrFromString(source)
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(destination)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(number, here, uintptr(unsafe.Pointer(from)), here, uintptr(unsafe.Pointer(to)), keepExisting, 0)
	return errnoOrNil(errno)
}

// LinkAt gives a file a further name; it follows no link.
func LinkAt(fromFD int, from string, toFD int, to string) error {
	old, err := syscall.BytePtrFromString(from)
	if err != nil {
		return err
	}
	name, err := syscall.BytePtrFromString(to)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(fromFD), uintptr(unsafe.Pointer(old)), uintptr(toFD), uintptr(unsafe.Pointer(name)), 0, 0)
	return errnoOrNil(errno)
}

func errnoOrNil(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// Unlink removes a name from a directory, with directory that of an empty directory.
func Unlink(at int, name string, directory bool) error {
	path, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	flags := uintptr(0)
	if directory {
		flags = removeDir
	}
	_, _, errno := syscall.Syscall(syscall.SYS_UNLINKAT, uintptr(at), uintptr(unsafe.Pointer(path)), flags)
	return errnoOrNil(errno)
}
