package inside

import (
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
	"unsafe"
)

// Extended attributes of the name space user, which anybody may set who may write the file.
const (
	attributePrefix = "user."
	// maxAttributes bounds the names and values that are told of one file; what goes beyond it is left out.
	maxAttributes = 16 << 10
)

// attribute is one of a file, its name without the prefix.
type attribute struct{ name, value string }

// attributesOf returns those of what path leads to, by name, as far as they are UTF-8.
func attributesOf(path string) []attribute {
	var list [64 << 10]byte
	n, err := syscall.Listxattr(path, list[:])
	if err != nil {
		return nil
	}
	names := strings.Split(strings.TrimRight(string(list[:n]), "\x00"), "\x00")
	slices.Sort(names)
	var found []attribute
	size := 0
	value := make([]byte, maxAttributes)
	for _, name := range names {
		short, is := strings.CutPrefix(name, attributePrefix)
		if !is || short == "" {
			continue
		}
		n, err := syscall.Getxattr(path, name, value)
		if err != nil || size+len(short)+n > maxAttributes || !utf8.Valid(value[:n]) || !utf8.ValidString(short) {
			continue
		}
		size += len(short) + n
		found = append(found, attribute{short, string(value[:n])})
	}
	return found
}

// setAttributes gives a file that is open the attributes, and first takes those away whose names begin with removed, unless it is "".
func setAttributes(fd int, removed string, attributes []attribute) error {
	if removed != "" {
		list := make([]byte, 64<<10)
		n, _, errno := syscall.Syscall(syscall.SYS_FLISTXATTR, uintptr(fd), uintptr(unsafe.Pointer(&list[0])), uintptr(len(list)))
		if errno != 0 && errno != syscall.ENOTSUP {
			return errno
		}
		if errno == 0 {
			for name := range strings.SplitSeq(string(list[:n]), "\x00") {
				if strings.HasPrefix(name, attributePrefix+removed) {
					if err := onAttribute(syscall.SYS_FREMOVEXATTR, fd, name, ""); err != nil && err != syscall.ENODATA {
						return err
					}
				}
			}
		}
	}
	for _, a := range attributes {
		if err := onAttribute(syscall.SYS_FSETXATTR, fd, attributePrefix+a.name, a.value); err != nil {
			return err
		}
	}
	return nil
}

func onAttribute(call uintptr, fd int, name, value string) error {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(unsafe.StringData(value))), uintptr(len(value)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
