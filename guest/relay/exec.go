package relay

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// exec is one whose files the relay keeps, from its Exec until the forwarder has closed its own.
type exec struct {
	id     string
	kinds  []string      // guarded by Relay.mu
	logs   [3]outputFile // stdout, stderr and their index; without a file for what leads nowhere
	record *os.File      // nil for none
	input  *input        // nil for none
	pipe   *pipe         // nil for none
}

// outputFile is one that output is written to, only at its end, by the goroutine of session.
type outputFile struct {
	file *os.File
	size atomic.Uint64
	lost uint64 // bytes that could not be written; after the first of them none is
	// short reports whether so many bytes more are too many for the disk.
	short func(*os.File, int) bool
}

func (r *Relay) newExec(id string) *exec {
	e := &exec{id: id}
	for i := range e.logs {
		e.logs[i].short = r.short
	}
	return e
}

// carry takes the descriptors of an Exec, or those from before when it is known.
func (r *Relay) carry(m *protocol.Exec, fds []int) (*exec, error) {
	if len(m.Roles) != len(fds) {
		closeAll(fds)
		return nil, fmt.Errorf("relay: exec %s has %d roles and %d descriptors", m.ID, len(m.Roles), len(fds))
	}
	e := r.newExec(m.ID)
	for i, fd := range fds {
		kind, err := kindOf(fd, m.Roles[i])
		if err != nil {
			closeAll(fds[i:])
			e.close()
			return nil, err
		}
		e.kinds = append(e.kinds, kind)
		e.keep(kind, fd)
	}
	if err := e.measure(); err != nil {
		e.close()
		return nil, err
	}
	r.mu.Lock()
	known := r.execs[m.ID]
	if known == nil {
		r.execs[m.ID] = e
	} else {
		known.kinds = e.kinds
	}
	r.mu.Unlock()
	if known != nil {
		e.close()
		return known, nil
	}
	return e, nil
}

// reserve is what the output of one sandbox may take of the headroom once the disk is short, in bytes, as in agbox-init.
const reserve = 1 << 20

// short is for the goroutine of session alone.
func (r *Relay) short(file *os.File, n int) bool {
	if uint64(n) <= r.Room(file) {
		r.reserved = 0
		return false
	}
	r.reserved += n
	return r.reserved > reserve
}

// kindOf tells what a descriptor is, which need not be what its role says: the daemon has commands of its own.
func kindOf(fd int, role string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return "", err
	}
	reads := flags&unix.O_ACCMODE == unix.O_RDONLY
	switch format := st.Mode & unix.S_IFMT; {
	case format == unix.S_IFREG && role == protocol.RoleStdout:
		return protocol.KindStdout, nil
	case format == unix.S_IFREG && role == protocol.RoleStderr:
		return protocol.KindStderr, nil
	case format == unix.S_IFREG && role == protocol.RoleIndex:
		return protocol.KindIndex, nil
	case format == unix.S_IFREG && role == protocol.RoleRecord:
		return protocol.KindRecord, nil
	case format == unix.S_IFIFO && reads:
		return protocol.KindInput, unix.SetNonblock(fd, true)
	case format == unix.S_IFIFO && role == protocol.RoleStdinKeeper:
		return protocol.KindKeeper, nil
	case format == unix.S_IFIFO:
		return protocol.KindPipe, unix.SetNonblock(fd, true)
	}
	return protocol.KindNull, nil
}

func (e *exec) keep(kind string, fd int) {
	file := os.NewFile(uintptr(fd), kind)
	switch kind {
	case protocol.KindStdout:
		e.logs[0].file = file
	case protocol.KindStderr:
		e.logs[1].file = file
	case protocol.KindIndex:
		e.logs[2].file = file
	case protocol.KindRecord:
		e.record = file
	case protocol.KindInput:
		e.input = newInput(e.id, file)
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, fifoRoom) // refused when more is in it
	case protocol.KindKeeper:
		if e.input != nil {
			e.input.keeper = file
			return
		}
		file.Close()
	case protocol.KindPipe:
		e.pipe = newPipe(file)
	default:
		file.Close()
	}
}

// measure finds out from where on output is wanted.
func (e *exec) measure() error {
	for i := range e.logs {
		if l := &e.logs[i]; l.file != nil {
			info, err := l.file.Stat()
			if err != nil {
				return err
			}
			l.size.Store(uint64(info.Size()))
		}
	}
	return nil
}

func (e *exec) close() {
	for _, file := range []*os.File{e.logs[0].file, e.logs[1].file, e.logs[2].file, e.record} {
		file.Close() // also of none
	}
	if e.input != nil {
		e.input.close()
	}
	if e.pipe != nil {
		e.pipe.file.Close()
	}
}

// take keeps what the forwarder sends.
func (e *exec) take(m *protocol.Data) error {
	switch {
	case e == nil:
		return nil
	case m.Stream >= protocol.StreamStdout && m.Stream <= protocol.StreamIndex:
		return e.logs[m.Stream].append(m.Offset, m.Bytes)
	case m.Stream == protocol.StreamPipe && e.pipe != nil:
		select {
		case e.pipe.queue <- m.Bytes:
			return nil
		default:
		}
	}
	return protocol.ErrMalformed
}

func (l *outputFile) append(offset uint64, data []byte) error {
	size := l.size.Load()
	switch {
	case l.file == nil || offset != size+l.lost:
		return protocol.ErrMalformed
	case l.lost > 0:
		l.lost += uint64(len(data))
		return nil
	case l.short(l.file, len(data)):
		l.lost = uint64(len(data))
		return nil
	}
	n, err := l.file.WriteAt(data, int64(offset))
	if err != nil {
		l.lost = uint64(len(data) - n)
	}
	l.size.Store(size + uint64(n))
	return nil
}

// confirmed notes that a chunk of the input has gone to the command.
func (e *exec) confirmed() error {
	if e == nil || e.input == nil {
		return nil
	}
	select {
	case e.input.credits <- struct{}{}:
		return nil
	default:
		return protocol.ErrMalformed
	}
}

// keep makes a result durable before anybody hears of it.
func (r *Relay) keep(m *protocol.Result) error {
	e := r.find(m.ID)
	if e == nil {
		return nil
	}
	if e.input != nil {
		e.input.close()
	}
	for i, written := range []*uint64{&m.StdoutBytes, &m.StderrBytes} {
		lost := min(e.logs[i].lost, *written)
		*written -= lost
		m.OutputLost += lost
	}
	record := e.record
	if m.ID == protocol.CommandID {
		var err error
		if record, err = r.Record(); err != nil {
			return err
		}
		defer record.Close()
	}
	if record == nil {
		return nil
	}
	if _, err := record.WriteAt(protocol.EncodeRecord(m), 0); err != nil {
		r.Log.Error("the result of an exec could not be written", "exec_id", m.ID, "error", err)
	}
	return nil
}

// again are the kinds to be opened anew.
func (e *exec) again() []string {
	kinds := slices.Clone(e.kinds)
	if e.input != nil && e.input.over.Load() {
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == protocol.KindInput })
	}
	return kinds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
