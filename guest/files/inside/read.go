package inside

import (
	"slices"
	"strconv"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/paths"
)

// carrier tells of a file or a tree with all that is in it, as a tar stream would. It opens regular files only, and waits for nobody
// who holds one.
type carrier struct {
	*output
	links map[fileID]string
	buf   []byte
}

// kernels are the directories whose content is no files. They are carried empty.
var kernels = []string{"/dev", "/proc", "/sys"}

type fileID struct{ device, inode uint64 }

// maxLinks bounds how many files with several names are known; further ones go out once for each name.
const maxLinks = 1 << 18

// carry goes by the names below path, whose last part is the first name in the stream; a link is told as one.
func (c *carrier) carry(path string) *fault {
	fd, base, real, err := locate(path)
	if err == nil {
		err = syscall.Close(fd)
	}
	var st syscall.Stat_t
	if err == nil {
		err = syscall.Lstat(real, &st)
	}
	if err != nil {
		return faultOf(path, err)
	}
	for _, dir := range kernels {
		if paths.Within(real, dir) {
			return &fault{protocol.FileMemory, strconv.Quote(path) + " lies in " + dir + ", where only the sandbox's own processes see what there is; use an exec, or another path"}
		}
	}
	c.links, c.buf = map[fileID]string{}, make([]byte, outputChunk)
	if base == "." {
		base = "/"
	}
	return c.one(real, base, &st)
}

func (c *carrier) one(path, name string, st *syscall.Stat_t) *fault {
	kind := st.Mode & syscall.S_IFMT
	switch kind {
	case syscall.S_IFREG:
		return c.regular(path, name)
	case syscall.S_IFLNK:
		target, err := kernel.Readlink(path)
		if err != nil {
			return c.unlessGone(path, err)
		}
		c.item(protocol.ItemSymlink, name, target, st)
	case syscall.S_IFDIR:
		c.item(protocol.ItemDirectory, name, "", st)
		if slices.Contains(kernels, path) {
			return nil
		}
		return c.below(path, name)
	case syscall.S_IFIFO:
		c.item(protocol.ItemFIFO, name, "", st)
	case syscall.S_IFCHR:
		c.item(protocol.ItemCharacters, name, "", st)
	case syscall.S_IFBLK:
		c.item(protocol.ItemBlocks, name, "", st)
	}
	return nil // a socket is nothing that could be carried
}

func (c *carrier) below(path, name string) *fault {
	names, err := namesIn(path)
	if err != nil {
		return c.unlessGone(path, err)
	}
	for _, one := range names {
		var st syscall.Stat_t
		at := kernel.Join(path, one)
		if err := syscall.Lstat(at, &st); err != nil {
			if problem := c.unlessGone(at, err); problem != nil {
				return problem
			}
			continue
		}
		if problem := c.one(at, kernel.Join(name, one), &st); problem != nil {
			return problem
		}
	}
	return nil
}

// unlessGone lets what vanishes meanwhile go.
func (c *carrier) unlessGone(path string, err error) *fault {
	if err == syscall.ENOENT || err == syscall.ENOTDIR {
		return nil
	}
	return faultOf(path, err)
}

func (c *carrier) regular(path, name string) *fault {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch err {
	case nil:
	case syscall.EAGAIN:
		return &fault{protocol.FileOther, strconv.Quote(path) + " is held by a process in the sandbox, which has a lease on it; end that, or leave the file out"}
	case syscall.ELOOP, syscall.ENXIO:
		return nil // it became something else
	default:
		return c.unlessGone(path, err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return faultOf(path, err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil
	}
	if st.Nlink > 1 {
		id := fileID{st.Dev, st.Ino}
		if first, known := c.links[id]; known {
			c.item(protocol.ItemLink, name, first, &st)
			return nil
		}
		if len(c.links) < maxLinks {
			c.links[id] = name
		}
	}
	c.item(protocol.ItemFile, name, "", &st)
	for rest := st.Size; rest > 0; {
		n, err := syscall.Read(fd, c.buf[:min(rest, int64(len(c.buf)))])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return faultOf(path, err)
		}
		if n == 0 {
			return &fault{protocol.FileOther, strconv.Quote(path) + " became shorter while it was read; try again when nobody writes to it"}
		}
		c.output.data(c.buf[:n])
		rest -= int64(n)
	}
	return nil
}

func (c *carrier) item(kind, name, link string, st *syscall.Stat_t) {
	i := protocol.FileItem{Type: kind, Mode: int64(st.Mode & 0o7777), UID: int64(st.Uid), GID: int64(st.Gid),
		Seconds: int64(st.Mtim.Sec), Nanoseconds: int64(st.Mtim.Nsec), Name: name, Link: link}
	switch kind {
	case protocol.ItemFile:
		i.Size = st.Size
	case protocol.ItemCharacters, protocol.ItemBlocks:
		i.Device = int64(st.Rdev)
	}
	c.grow(i.Append(c.output.buf))
}
