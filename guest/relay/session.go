package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/text"
)

// session is one forwarder in the sandbox, from its start to its end. For the link it is the transport to init.
type session struct {
	*Relay
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stream  types.HijackedResponse
	queue   *protocol.Queue // to the forwarder, which always reads
	decoder protocol.Decoder
	peer    *link.Peer // once init has said hello
	tasks   sync.WaitGroup
	greeted func()
}

var _ link.Transport = (*session)(nil)

// maxQueued frames wait for a forwarder that does not read: what the link says and the credits of inputs bound them.
const maxQueued = 16384

// session returns when the stream to the forwarder has ended, and nothing works on it any more.
func (r *Relay) session(ctx context.Context, greeted func()) (err error) {
	s := &session{Relay: r, greeted: greeted}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if s.stream, err = r.Attach(s.ctx); err != nil {
		s.cancel(err)
		return err
	}
	s.queue = protocol.NewQueue(maxQueued, s.transmit, func() { s.cancel(errors.New("relay: the forwarder does not read")) })
	closed, heard := make(chan struct{}), make(chan struct{})
	context.AfterFunc(s.ctx, func() {
		defer close(closed)
		defer s.stream.Close()
		defer s.queue.Close()
		if ctx.Err() != nil { // not because it broke
			s.finish(heard)
		}
	})
	s.tasks.Go(s.queue.Run)
	s.tasks.Go(s.repeat)
	_, err = stdcopy.StdCopy(s, complaints{r}, s.stream.Reader)
	close(heard)
	if err == nil {
		err = io.EOF
	}
	s.cancel(err)
	if s.peer != nil {
		s.peer.Leave()
	}
	<-closed
	s.tasks.Wait()
	return context.Cause(s.ctx)
}

// complaints takes what the forwarder says on stderr.
type complaints struct{ *Relay }

// maxComplaint bytes of each go to the log.
const maxComplaint = 2 << 10

func (c complaints) Write(p []byte) (int, error) {
	c.Log.Warn("the relay into a sandbox", "says", text.Bound(string(p), maxComplaint))
	return len(p), nil
}

func (s *session) transmit(o protocol.Outgoing) error {
	_, err := s.stream.Conn.Write(o.Frame)
	if err != nil {
		s.cancel(err)
	}
	return err
}

func (s *session) send(m protocol.Message) {
	if err := s.queue.Send(m); err != nil {
		s.cancel(err)
	}
}

// lastWords is how long a forwarder may take to read the last of the input, which it keeps for the next one, and to end.
const lastWords = 2 * time.Second

// finish sends what clients have written and was not sent yet: it would be gone with the FIFO's last reader. It waits until the
// forwarder has taken all of that and has ended, since one that another takes the place of reads no further.
func (s *session) finish(heard <-chan struct{}) {
	late := time.After(lastWords)
	s.stream.Conn.SetWriteDeadline(time.Now().Add(lastWords))
	for _, e := range s.list() {
		if in := e.input; in != nil && !in.over.Load() {
			in.turn <- struct{}{} // its reader ends now
			for _, data := range in.rest() {
				s.send(&protocol.Data{ID: in.id, Bytes: data})
			}
			<-in.turn
		}
	}
	if !<-s.queue.Flush() || s.stream.CloseWrite() != nil {
		s.Log.Warn("input of execs may be lost: their sandbox did not take it in time")
		return
	}
	select {
	case <-heard:
	case <-late:
	}
}

// repeat opens what was open with the last forwarder, and what the main command writes in any case.
func (s *session) repeat() {
	if err := s.openPrimary(); err != nil {
		s.cancel(err)
		return
	}
	for _, e := range s.list() {
		s.open(e, true)
	}
	s.send(&protocol.Ready{})
}

// openPrimary opens the log of the image's entrypoint and the main command: a daemon that comes back is not given it again.
func (s *session) openPrimary() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.execs[protocol.CommandID] != nil {
		return nil
	}
	stdout, stderr, err := s.Outputs()
	if err != nil {
		return err
	}
	e := s.newExec(protocol.CommandID)
	e.kinds = []string{protocol.KindStdout, protocol.KindStderr}
	e.logs[0].file, e.logs[1].file = stdout, stderr
	s.execs[e.id] = e
	return e.measure()
}

// open tells the forwarder of an exec, before what brings its descriptors or again.
func (s *session) open(e *exec, again bool) {
	s.mu.Lock()
	kinds := e.kinds
	if again {
		kinds = e.again()
	}
	s.mu.Unlock()
	s.send(&protocol.Open{ID: e.id, Kinds: kinds, Again: again, Stdout: e.logs[0].size.Load(), Stderr: e.logs[1].size.Load(), Index: e.logs[2].size.Load()})
	if e.input != nil && e.input.over.Load() {
		s.send(&protocol.CloseStdin{ID: e.id})
	} else if e.input != nil {
		s.tasks.Go(func() { s.carryInput(e.input) })
	}
	if e.pipe != nil {
		s.tasks.Go(func() { s.carryPipe(e.id, e.pipe) })
	}
}

// Write takes what the forwarder says. It is for the goroutine of session alone.
func (s *session) Write(data []byte) (int, error) {
	s.decoder.Feed(data, nil)
	for {
		m, _, err := s.decoder.Next()
		if err == nil && m == nil {
			return len(data), nil
		}
		if err == nil {
			err = s.hear(m)
		}
		if err != nil {
			return 0, err
		}
	}
}

func (s *session) hear(m protocol.Message) error {
	switch m := m.(type) {
	case *protocol.Hello:
		if s.peer != nil {
			return fmt.Errorf("relay: a second hello: %w", protocol.ErrMalformed)
		}
		var err error
		if s.peer, err = s.Link.Join(s, m); err == nil {
			s.greeted()
		}
		return err
	case *protocol.Data:
		err := s.find(m.ID).take(m)
		if m.Stream == protocol.StreamPipe && len(m.Bytes) == 0 {
			s.forget(m.ID, true)
		}
		return err
	case *protocol.Credit:
		return s.find(m.ID).confirmed()
	case *protocol.InputClosed:
		if e := s.find(m.ID); e != nil && e.input != nil {
			e.input.close()
		}
		return nil
	case *protocol.Closed:
		s.forget(m.ID, false)
		return nil
	case *protocol.Result:
		if err := s.keep(m); err != nil {
			return err
		}
	}
	if s.peer == nil {
		return fmt.Errorf("relay: no hello: %w", protocol.ErrMalformed)
	}
	s.peer.Take(m)
	return nil
}

// Send does what the link says to init.
func (s *session) Send(o protocol.Outgoing) error {
	switch m := o.Message.(type) {
	case *protocol.Boot:
		kinds := []string{protocol.KindStdout, protocol.KindStderr, protocol.KindRecord}[:min(len(o.FDs), 3)]
		closeAll(o.FDs) // it has its own
		e := s.find(protocol.CommandID)
		if e == nil {
			return errors.New("relay: the main command ended before it began")
		}
		s.mu.Lock()
		e.kinds = kinds
		s.mu.Unlock()
		s.open(e, false)
	case *protocol.Exec:
		if len(o.FDs) == 0 {
			break
		}
		e, err := s.carry(m, o.FDs)
		if err != nil {
			s.Log.Error("an exec could not be relayed", "exec_id", m.ID, "error", err)
			return err
		}
		s.open(e, false)
	case *protocol.CloseStdin:
		if e := s.find(m.ID); e != nil && e.input != nil {
			e.input.closeKeeper() // the forwarder hears of the end when the rest has gone
			return nil
		}
	}
	s.send(o.Message)
	return nil
}

// Close ends the session, for the link, which wants another connection.
func (s *session) Close() error {
	s.cancel(errors.New("relay: the link has given the connection up"))
	return nil
}
