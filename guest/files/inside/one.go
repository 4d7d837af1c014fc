package inside

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// What one user does to one file is done by a process of that user: it goes where the kernel lets that user go, and by any link. Only
// regular files are read and written; what is opened on the way is opened without waiting for anybody, and looked at before it is used.

// notRegular refuses what is open.
func notRegular(path string, st *syscall.Stat_t) *fault {
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return nil
	case syscall.S_IFDIR:
		return faultOf(path, syscall.EISDIR)
	}
	return &fault{protocol.FileOther, strconv.Quote(path) + " is no regular file, and what it holds is nobody's to carry; use an exec"}
}

const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY | syscall.O_CLOEXEC

// get tells of a regular file and then its bytes: so many from offset on, all there are when length is 0.
func (o *output) get(path string, offset, length int64) *fault {
	fd, err := syscall.Open(path, syscall.O_RDONLY|openFlags, 0)
	if err != nil {
		return faultOf(path, err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return faultOf(path, err)
	}
	if problem := notRegular(path, &st); problem != nil {
		return problem
	}
	o.entry(path, path, &st)
	if offset > 0 {
		if _, err := syscall.Seek(fd, offset, 0); err != nil {
			return faultOf(path, err)
		}
	}
	buf := make([]byte, outputChunk)
	for rest := length; length == 0 || rest > 0; {
		part := buf
		if length > 0 {
			part = buf[:min(rest, int64(len(buf)))]
		}
		n, err := syscall.Read(fd, part)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return faultOf(path, err)
		}
		if n == 0 {
			return nil
		}
		o.data(part[:n])
		rest -= int64(n)
	}
	return nil
}

// putting is one file as it is written.
type putting struct {
	in                *bufio.Reader
	path              string
	mode              int64 // below zero: that of the file that is there
	inPlace, parents  bool
	removed           string
	attributes        []attribute
	fd                int
	existing, foreign bool // foreign: another user's, whose mode and owner stay
}

const newFile, newDirectory = 0o644, 0o755

// put writes what comes to a file, and tells of it when it is whole:
//
//	put PATH MODE REMOVED-ATTRIBUTES [-in-place] [-parents]
func put(o *output, path string, args []string) *fault {
	signal.Ignore(syscall.SIGTERM) // the end of what comes is what it heeds
	debug.SetGCPercent(20)
	p := putting{in: bufio.NewReaderSize(os.Stdin, 64<<10), path: path, fd: -1}
	p.mode, _ = strconv.ParseInt(args[0], 10, 64)
	p.removed = args[1]
	for _, option := range args[2:] {
		p.inPlace = p.inPlace || option == "-in-place"
		p.parents = p.parents || option == "-parents"
	}
	syscall.Umask(0)
	if p.parents {
		if problem := makeParents(path); problem != nil {
			return problem
		}
	}
	problem := p.write()
	if p.fd >= 0 {
		syscall.Close(p.fd)
	}
	if problem != nil {
		return problem
	}
	return o.stat(path)
}

func (p *putting) write() *fault {
	if p.inPlace {
		if problem := p.open(); problem != nil {
			return problem
		}
		return p.fill()
	}
	if p.mode < 0 {
		p.mode = newFile
		var st syscall.Stat_t
		if err := syscall.Lstat(p.path, &st); err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			p.mode = int64(st.Mode & 0o777)
		} else if err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			return faultOf(p.path, syscall.EISDIR)
		}
	}
	dir, base, real, err := locate(p.path)
	if err != nil {
		return faultOf(p.path, err)
	}
	defer syscall.Close(dir)
	if base == "." {
		return faultOf(real, syscall.EISDIR)
	}
	// Nothing of another name can be in the way of this one.
	name := ".agbox-" + strconv.FormatUint(rand.Uint64(), 36)
	if p.fd, err = syscall.Openat(dir, name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600); err != nil {
		return faultOf(p.path, err)
	}
	problem := p.fill()
	if problem == nil {
		if err := syscall.Renameat(dir, name, dir, base); err != nil {
			problem = faultOf(p.path, err)
		}
	}
	if problem != nil {
		kernel.Unlink(dir, name, false)
	}
	return problem
}

// open opens what is there, or makes it, for writing from its beginning on. What is there stays whole until all else was allowed.
func (p *putting) open() *fault {
	const flags = syscall.O_WRONLY | openFlags
	var err error
	if p.fd, err = syscall.Open(p.path, flags|syscall.O_CREAT|syscall.O_EXCL, newFile); err == nil {
		if p.mode < 0 {
			p.mode = newFile
		}
		return nil
	}
	if err == syscall.EEXIST {
		p.existing = true
		if p.fd, err = syscall.Open(p.path, flags, 0); err == syscall.ENOENT { // a link to where nothing is yet
			p.existing = false
			p.fd, err = syscall.Open(p.path, flags|syscall.O_CREAT, newFile)
		}
	}
	if err == syscall.ENXIO {
		return &fault{protocol.FileOther, strconv.Quote(p.path) + " is no regular file; use an exec"}
	} else if err != nil {
		return faultOf(p.path, err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(p.fd, &st); err != nil {
		return faultOf(p.path, err)
	}
	if problem := notRegular(p.path, &st); problem != nil {
		return problem
	}
	p.foreign = int(st.Uid) != os.Geteuid()
	return nil
}

// fill takes over what comes: attributes, data and the end.
func (p *putting) fill() *fault {
	if p.existing && p.foreign && os.Geteuid() == 0 {
		if err := syscall.Fchown(p.fd, 0, os.Getegid()); err != nil {
			return faultOf(p.path, err)
		}
	}
	if p.mode >= 0 {
		if err := syscall.Fchmod(p.fd, uint32(p.mode)&0o7777); err != nil {
			return faultOf(p.path, err)
		}
	}
	at, ready := int64(0), false
	for {
		fields, err := protocol.ReadFile(p.in)
		if err != nil {
			return p.cutOff(err)
		}
		if fields[0] == protocol.FileAttribute && len(fields) == 3 && !ready {
			p.attributes = append(p.attributes, attribute{fields[1], fields[2]})
			continue
		}
		if !ready {
			ready = true
			err := setAttributes(p.fd, p.removed, p.attributes)
			if err == nil && p.existing {
				err = syscall.Ftruncate(p.fd, 0)
			}
			if err != nil {
				return faultOf(p.path, err)
			}
		}
		switch {
		case fields[0] == protocol.FileEnd:
			return nil
		case fields[0] == protocol.FileData && len(fields) == 2:
			if err := writeAt(p.fd, fields[1], at); err != nil {
				return faultOf(p.path, err)
			}
			at += int64(len(fields[1]))
		default:
			return p.cutOff(protocol.ErrMalformed)
		}
	}
}

// cutOff is for a stream that ends before its end: nobody is left to tell, and no part of a file stays under a name of its own.
func (p *putting) cutOff(err error) *fault {
	return &fault{protocol.FileOther, strconv.Quote(p.path) + ": what is to be written ended too early: " + err.Error()}
}

// makeParents makes the directories above a path, as far as they are missing.
func makeParents(path string) *fault {
	end := strings.LastIndexByte(path, '/')
	if end <= 0 {
		return nil
	}
	return makeAll(path[:end])
}

// makeAll makes a directory and those above it.
func makeAll(dir string) *fault {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err == nil {
		if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			return faultOf(dir, syscall.ENOTDIR)
		}
		return nil
	}
	if problem := makeParents(dir); problem != nil {
		return problem
	}
	if err := syscall.Mkdir(dir, newDirectory); err != nil && err != syscall.EEXIST {
		return faultOf(dir, err)
	}
	return nil
}
