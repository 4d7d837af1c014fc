package dockerrt

import (
	"fmt"
	"io"
	"net"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// dialLink goes by way of the directory's descriptor, as the link's listener does: the path may be too long for an address.
func dialLink(path string) (*net.UnixConn, error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))})
}

// readLink passes on what the link says.
func (p *passage) readLink() {
	var decoder protocol.Decoder
	defer func() { closeFDs(decoder.Rest()) }()
	buf, oob := make([]byte, 16<<10), make([]byte, unix.CmsgSpace(4*protocol.MaxFiles))
	for {
		n, oobn, _, _, err := p.link.ReadMsgUnix(buf, oob)
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			p.cancel(err)
			return
		}
		decoder.Feed(buf[:n], rights(oob[:oobn]))
		for {
			m, fds, err := decoder.Next()
			if err != nil {
				p.cancel(err)
				return
			}
			if m == nil {
				break
			}
			if err := p.told(m, fds); err != nil {
				p.cancel(err)
				return
			}
		}
	}
}

func rights(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		got, _ := unix.ParseUnixRights(&messages[i])
		fds = append(fds, got...)
	}
	return fds
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// told does what the link says to init; the descriptors are taken over.
func (p *passage) told(m protocol.Message, fds []int) error {
	switch m := m.(type) {
	case *protocol.Boot:
		kinds := []string{protocol.KindStdout, protocol.KindStderr, protocol.KindRecord}[:min(len(fds), 3)]
		closeFDs(fds) // it has its own
		e := p.find(protocol.CommandID)
		if e == nil {
			return fmt.Errorf("dockerrt: the main command of %s ended before it began: %w", p.sandboxID, protocol.ErrMalformed)
		}
		p.mu.Lock()
		e.kinds = kinds
		p.mu.Unlock()
		p.open(e, false)
	case *protocol.Exec:
		if len(fds) == 0 {
			break
		}
		e, err := p.carry(m, fds)
		if err != nil {
			return err
		}
		p.open(e, false)
	case *protocol.CloseStdin:
		if e := p.find(m.ID); e != nil && e.input != nil {
			e.input.closeKeeper() // the relay hears of the end when the rest has gone
			return nil
		}
	default:
		closeFDs(fds)
	}
	p.send(m)
	return nil
}
