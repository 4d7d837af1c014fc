package dockerrt

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// carried is an exec whose files a bridge keeps, from its Exec until the relay has closed its own.
type carried struct {
	id     string
	kinds  []string      // guarded by bridge.mu
	logs   [3]carriedLog // stdout, stderr and their index; without a file for what leads nowhere
	record *os.File      // nil for none
	input  *carriedInput // nil for none
	pipe   *carriedPipe  // nil for none
}

// carriedLog is a file that output is written to, only at its end, by the goroutine of session.
type carriedLog struct {
	file *os.File
	size atomic.Uint64
	lost uint64 // bytes that could not be written; after the first of them none is
	// short reports whether so many bytes more are too many for the disk.
	short func(*os.File, int) bool
}

// carriedInput is the FIFO that clients write to.
type carriedInput struct {
	id     string
	file   *os.File
	keeper *os.File
	turn   chan struct{} // one token, for whoever reads
	tokens chan struct{} // one for each chunk that may be under way
	unsent []byte        // was read, and belongs to whoever has the turn
	over   atomic.Bool   // it has come to its end
}

const (
	// inputChunk and bridgeRoom, in bytes, keep what is under way to a command small: all of it fits into the engine's buffers
	// when the relay stands still with the sandbox.
	inputChunk = 16 << 10
	bridgeRoom = 64 << 10
)

// carriedPipe is a pipe that the daemon itself reads.
type carriedPipe struct {
	file  *os.File
	turn  chan struct{}
	queue chan []byte // has room for all that may be under way
}

func (b *bridge) find(id string) *carried {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.execs[id]
}

// carry takes the descriptors of an Exec, or those from before when it is known.
func (b *bridge) carry(m *protocol.Exec, fds []int) (*carried, error) {
	roles := m.Roles
	if len(roles) == 0 {
		roles = []string{protocol.RoleStdout, protocol.RoleStderr, protocol.RoleRecord}
	}
	if len(roles) != len(fds) {
		closeFDs(fds)
		return nil, fmt.Errorf("dockerrt: exec %s has %d roles and %d descriptors", m.ID, len(roles), len(fds))
	}
	e := b.newCarried(m.ID)
	for i, fd := range fds {
		kind, err := kindOf(fd, roles[i])
		if err != nil {
			closeFDs(fds[i:])
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
	b.mu.Lock()
	known := b.execs[m.ID]
	if known == nil {
		b.execs[m.ID] = e
	} else {
		known.kinds = e.kinds
	}
	b.mu.Unlock()
	if known != nil {
		e.close()
		return known, nil
	}
	return e, nil
}

func (b *bridge) newCarried(id string) *carried {
	e := &carried{id: id}
	for i := range e.logs {
		e.logs[i].short = b.short
	}
	return e
}

// reserve is what the output of one sandbox may take of the headroom once the disk is short, in bytes, as in agbox-init.
const reserve = 1 << 20

// short is for the goroutine of session alone.
func (b *bridge) short(file *os.File, n int) bool {
	if uint64(n) <= b.docker.room(file) {
		b.reserved = 0
		return false
	}
	b.reserved += n
	return b.reserved > reserve
}

// room is how many bytes may be added to a file of output without taking the last of its disk. What agbox-init looks at is the
// disk of the engine.
func (d *Docker) room(file *os.File) uint64 {
	var disk unix.Statfs_t
	if d.config.DiskHeadroom == 0 || unix.Fstatfs(int(file.Fd()), &disk) != nil {
		return math.MaxUint64
	}
	free := disk.Bavail * uint64(disk.Bsize)
	return free - min(free, d.config.DiskHeadroom)
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

func (e *carried) keep(kind string, fd int) {
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
		e.input = &carriedInput{id: e.id, file: file, turn: make(chan struct{}, 1), tokens: make(chan struct{}, protocol.DataWindow)}
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, bridgeRoom) // refused when more is in it
		for range protocol.DataWindow {
			e.input.tokens <- struct{}{}
		}
	case protocol.KindKeeper:
		if e.input != nil {
			e.input.keeper = file
			return
		}
		file.Close()
	case protocol.KindPipe:
		e.pipe = &carriedPipe{file: file, turn: make(chan struct{}, 1), queue: make(chan []byte, protocol.DataWindow)}
	default:
		file.Close()
	}
}

// measure finds out from where on output is wanted.
func (e *carried) measure() error {
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

func (e *carried) close() {
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

// take keeps what the relay sends.
func (e *carried) take(m *protocol.Data) error {
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

func (l *carriedLog) append(offset uint64, data []byte) error {
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
func (e *carried) confirmed() error {
	if e == nil || e.input == nil {
		return nil
	}
	select {
	case e.input.tokens <- struct{}{}:
		return nil
	default:
		return protocol.ErrMalformed
	}
}

// finish makes a result durable before anybody hears of it.
func (p *passage) finish(m *protocol.Result) error {
	e := p.find(m.ID)
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
		if record, err = p.docker.layout.openRecord(p.sandboxID, m.ID); err != nil {
			return err
		}
		defer record.Close()
	}
	if record == nil {
		return nil
	}
	if _, err := record.WriteAt(protocol.EncodeRecord(m), 0); err != nil {
		p.docker.log.Error("the result of an exec could not be written", "sandbox_id", p.sandboxID, "exec_id", m.ID, "error", err)
	}
	return nil
}

func (b *bridge) forget(id string) {
	b.mu.Lock()
	e := b.execs[id]
	if e == nil || e.pipe != nil { // a pipe may have more to carry than the exec has life
		b.mu.Unlock()
		return
	}
	delete(b.execs, id)
	b.mu.Unlock()
	e.close()
}

// piped lets go of an exec with a pipe, whose file is closed by whoever carries it.
func (b *bridge) piped(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.execs, id)
}

// drop closes all files, when nobody works on them any more.
func (b *bridge) drop() {
	for _, e := range b.execs {
		e.close()
	}
}

// interrupted is for after the end of a passage. What was under way between two ends cannot be known to have arrived.
func (b *bridge) interrupted() {
	for id, e := range b.execs {
		for i := range e.logs {
			e.logs[i].lost = 0
		}
		if e.pipe != nil {
			e.close()
			delete(b.execs, id)
		}
		if in := e.input; in != nil && len(in.tokens) < protocol.DataWindow && !in.over.Swap(true) {
			in.close()
			b.docker.log.Warn("the way into a sandbox broke while input was under way: the input of the exec is closed",
				"sandbox_id", b.sandboxID, "exec_id", id)
		}
	}
}

// again are the kinds to be opened anew.
func (e *carried) again() []string {
	kinds := slices.Clone(e.kinds)
	if e.input != nil && e.input.over.Load() {
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == protocol.KindInput })
	}
	return kinds
}
