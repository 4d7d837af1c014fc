package kernel

import "syscall"

// Regular is a regular file that is open to be read, or none.
type Regular struct {
	syscall.Stat_t
	fd   int
	Open bool
}

// OpenRegular opens a file without waiting for anybody; none when there is none, or one of another kind.
func OpenRegular(path string) (Regular, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	switch err {
	case nil:
	case syscall.EAGAIN, syscall.EINTR, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return Regular{}, err
	default:
		return Regular{}, nil
	}
	f := Regular{fd: fd, Open: true}
	if syscall.Fstat(fd, &f.Stat_t) != nil || f.Mode&syscall.S_IFMT != syscall.S_IFREG {
		f.Close()
		return Regular{}, nil
	}
	return f, nil
}

// Close lets go of it, if there is one.
func (f *Regular) Close() {
	if f.Open {
		syscall.Close(f.fd)
		f.Open = false
	}
}

// Start returns up to most bytes of the file's beginning.
func (f *Regular) Start(most int) []byte {
	buf := make([]byte, most)
	n := 0
	for n < most {
		more, err := syscall.Read(f.fd, buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || more <= 0 {
			break
		}
		n += more
	}
	return buf[:n]
}
