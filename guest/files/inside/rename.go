package inside

import (
	"slices"
	"strconv"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// makeDirectory makes one where nothing is:
//
//	mkdir PATH MODE [-parents]
func makeDirectory(o *output, path string, args []string) *fault {
	syscall.Umask(0)
	mode, _ := strconv.ParseUint(args[0], 10, 32)
	if slices.Contains(args[1:], "-parents") {
		if problem := makeParents(path); problem != nil {
			return problem
		}
	}
	if err := syscall.Mkdir(path, uint32(mode)&0o7777); err == syscall.EEXIST {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil && st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			return faultOf(path, syscall.ENOTDIR)
		}
		return faultOf(path, err)
	} else if err != nil {
		return faultOf(path, err)
	}
	if special := mode & 0o7000; special != 0 { // which mkdir(2) does not heed
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|openFlags, 0)
		if err == nil {
			defer syscall.Close(fd)
			err = syscall.Fchmod(fd, uint32(mode)&0o7777)
		}
		if err != nil {
			return faultOf(path, err)
		}
	}
	return o.stat(path)
}

// move renames, as rename(2) does it:
//
//	move SOURCE DESTINATION [-parents] [-keep]
func move(o *output, source string, args []string) *fault {
	destination := args[0]
	syscall.Umask(0)
	var st syscall.Stat_t
	if err := syscall.Lstat(source, &st); err != nil {
		return faultOf(source, err)
	}
	if slices.Contains(args[1:], "-parents") {
		if problem := makeParents(destination); problem != nil {
			return problem
		}
	}
	var err error
	if slices.Contains(args[1:], "-keep") {
		err = kernel.RenameNew(source, destination)
	} else {
		err = syscall.Rename(source, destination)
	}
	if err != nil {
		return faultOf(destination, err)
	}
	return o.stat(destination)
}
