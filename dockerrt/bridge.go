package dockerrt

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// bridge passes for the agbox-init of a sandbox that cannot reach the daemon's socket: it connects to the link, and has its
// other end in a process in the sandbox, "agbox-init relay", which the engine's exec carries the bytes to and from. What that
// sends of the commands' output goes to the files that the link has handed over. Initproto's relay.go tells what is said.
//
// Whatever is inside may be forged by the sandbox's root: nothing from there chooses a file.
type bridge struct {
	docker    *Docker
	sandboxID string
	running   <-chan struct{}
	cancel    context.CancelFunc
	ended     chan struct{}
	wake      chan struct{} // one token: it is worth trying again
	reserved  int           // bytes written since the disk is short

	mu    sync.Mutex
	execs map[string]*carried
}

// How soon a relay is started again, when the last one ended or could not be started, as in a paused container.
const (
	firstRelay = 50 * time.Millisecond
	lastRelay  = 5 * time.Second
)

func (d *Docker) startBridge(sandboxID string, running <-chan struct{}) *bridge {
	ctx, cancel := context.WithCancel(context.Background())
	b := &bridge{
		docker: d, sandboxID: sandboxID, running: running, cancel: cancel,
		ended: make(chan struct{}), wake: make(chan struct{}, 1), execs: map[string]*carried{},
	}
	go b.run(ctx)
	return b
}

// close returns when nothing of the bridge is left. The relay ends with its input.
func (b *bridge) close() {
	b.cancel()
	<-b.ended
}

func (b *bridge) hurry() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *bridge) run(ctx context.Context) {
	defer close(b.ended)
	defer b.drop()
	select {
	case <-b.running:
	case <-ctx.Done():
		return
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRelay, lastRelay
	for {
		err := b.session(ctx, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		delay := wait.NextBackOff()
		b.docker.log.Debug("the relay into a sandbox ended", "sandbox_id", b.sandboxID, "again_in", delay, "error", err)
		select {
		case <-time.After(delay):
		case <-b.wake:
		case <-ctx.Done():
			return
		}
	}
}

// passage is one relay, from its start to its end.
type passage struct {
	*bridge
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stream  types.HijackedResponse
	frames  chan []byte   // to the relay
	written chan struct{} // closed when nothing of frames is written any more
	decoder protocol.Decoder
	link    *net.UnixConn // once init has said hello
	tasks   sync.WaitGroup
	greeted func()
}

// session returns when the stream to the relay or the connection to the link has ended, and nothing works on them any more.
func (b *bridge) session(ctx context.Context, greeted func()) (err error) {
	p := &passage{bridge: b, frames: make(chan []byte), written: make(chan struct{}), greeted: greeted}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if p.stream, err = b.startRelay(p.ctx); err != nil {
		p.cancel(err)
		return err
	}
	closed := make(chan struct{})
	context.AfterFunc(p.ctx, func() {
		defer close(closed)
		defer p.stream.Close()
		if ctx.Err() != nil { // not because it broke
			p.finishInputs()
		}
	})
	p.tasks.Go(p.repeat)
	go p.write()
	_, err = stdcopy.StdCopy(p, relayLog{b}, p.stream.Reader)
	if err == nil {
		err = io.EOF
	}
	p.cancel(err)
	if p.link != nil {
		p.link.Close()
	}
	<-closed
	p.tasks.Wait()
	<-p.written
	if ctx.Err() == nil {
		b.interrupted()
	}
	return context.Cause(p.ctx)
}

func (b *bridge) startRelay(ctx context.Context) (types.HijackedResponse, error) {
	ctx, cancel := b.docker.api.Read(ctx)
	defer cancel()
	id, err := b.docker.api.Primary(ctx, b.sandboxID)
	if err != nil {
		return types.HijackedResponse{}, err
	}
	made, err := b.docker.api.ContainerExecCreate(ctx, id, container.ExecOptions{
		User: "0:0", WorkingDir: "/", AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Cmd: []string{initTarget, "relay", "--socket=" + initSocket, "--logs=" + logTarget, "--state=" + relayState},
	})
	if err != nil {
		return types.HijackedResponse{}, err
	}
	return b.docker.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
}

// relayLog takes what the relay says on stderr.
type relayLog struct{ *bridge }

func (l relayLog) Write(p []byte) (int, error) {
	l.docker.log.Warn("the relay into a sandbox", "sandbox_id", l.sandboxID, "says", tail(string(p)))
	return len(p), nil
}

// write sends to the relay, which always reads.
func (p *passage) write() {
	defer close(p.written)
	for {
		select {
		case frame := <-p.frames:
			if _, err := p.stream.Conn.Write(frame); err != nil {
				p.cancel(err)
				return
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// send reports whether the message is on its way, which it is not once the passage has ended.
func (p *passage) send(m protocol.Message) bool {
	frame, err := protocol.Encode(m, 0)
	if err != nil {
		p.cancel(err)
		return false
	}
	select {
	case p.frames <- frame:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// lastInput is how long a relay may take to read the last of the input, which it keeps for the next one.
const lastInput = 2 * time.Second

// finishInputs sends what clients have written and was not sent yet: it would be gone with the FIFO's last reader. The relay
// keeps it.
func (p *passage) finishInputs() {
	p.stream.Conn.SetWriteDeadline(time.Now().Add(lastInput))
	<-p.written
	p.mu.Lock()
	var inputs []*carriedInput
	for _, e := range p.execs {
		if e.input != nil && !e.input.over.Load() {
			inputs = append(inputs, e.input)
		}
	}
	p.mu.Unlock()
	for _, in := range inputs {
		in.turn <- struct{}{} // its reader ends now
		for _, m := range in.rest() {
			frame, err := protocol.Encode(m, 0)
			if err == nil {
				_, err = p.stream.Conn.Write(frame)
			}
			if err != nil {
				p.docker.log.Warn("input of an exec is lost: its sandbox did not take it in time", "sandbox_id", p.sandboxID, "exec_id", in.id)
				break
			}
		}
		<-in.turn
	}
}

// repeat opens what was open with the last relay, and what the main command writes in any case.
func (p *passage) repeat() {
	if err := p.openPrimary(); err != nil {
		p.cancel(err)
		return
	}
	p.mu.Lock()
	var list []*carried
	for _, e := range p.execs {
		list = append(list, e)
	}
	p.mu.Unlock()
	for _, e := range list {
		p.open(e, true)
	}
	p.send(&protocol.Ready{})
}

// openPrimary opens the log of the image's entrypoint and the main command: a daemon that comes back is not given it again.
func (p *passage) openPrimary() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.execs[protocol.CommandID] != nil {
		return nil
	}
	stdout, stderr, err := p.docker.openOutputs(p.sandboxID, protocol.CommandID)
	if err != nil {
		return err
	}
	e := p.newCarried(protocol.CommandID)
	e.kinds = []string{protocol.KindStdout, protocol.KindStderr}
	e.logs[0].file, e.logs[1].file = stdout, stderr
	p.execs[e.id] = e
	return e.measure()
}

// open tells the relay of an exec, before what brings its descriptors or again.
func (p *passage) open(e *carried, again bool) {
	p.mu.Lock()
	kinds := e.kinds
	if again {
		kinds = e.again()
	}
	p.mu.Unlock()
	p.send(&protocol.Open{ID: e.id, Kinds: kinds, Again: again, Stdout: e.logs[0].size.Load(), Stderr: e.logs[1].size.Load(), Index: e.logs[2].size.Load()})
	if e.input != nil && e.input.over.Load() {
		p.send(&protocol.CloseStdin{ID: e.id})
	} else if e.input != nil {
		p.tasks.Go(func() { p.carryInput(e.input) })
	}
	if e.pipe != nil {
		p.tasks.Go(func() { p.carryPipe(e.id, e.pipe) })
	}
}

// Write takes what the relay says. It is for the goroutine of session alone.
func (p *passage) Write(data []byte) (int, error) {
	p.decoder.Feed(data, nil)
	for {
		m, _, err := p.decoder.Next()
		if err == nil && m == nil {
			return len(data), nil
		}
		if err == nil {
			err = p.hear(m)
		}
		if err != nil {
			return 0, err
		}
	}
}

func (p *passage) hear(m protocol.Message) error {
	switch m := m.(type) {
	case *protocol.Hello:
		return p.greet(m)
	case *protocol.Data:
		err := p.find(m.ID).take(m)
		if m.Stream == protocol.StreamPipe && len(m.Bytes) == 0 {
			p.piped(m.ID)
		}
		return err
	case *protocol.Room:
		return p.find(m.ID).confirmed()
	case *protocol.Deaf:
		if e := p.find(m.ID); e != nil && e.input != nil {
			e.input.close()
		}
		return nil
	case *protocol.Closed:
		p.forget(m.ID)
		return nil
	case *protocol.Result:
		if err := p.finish(m); err != nil {
			return err
		}
	}
	return p.pass(m)
}

// greet connects to the link as init would.
func (p *passage) greet(hello *protocol.Hello) error {
	if p.link != nil {
		return fmt.Errorf("dockerrt: a second hello: %w", protocol.ErrMalformed)
	}
	conn, err := dialLink(p.docker.layout.socket(p.sandboxID))
	if err != nil {
		return err
	}
	p.link = conn
	p.greeted()
	p.tasks.Go(p.readLink)
	return p.pass(hello)
}

// pass hands a message to the link, which always reads.
func (p *passage) pass(m protocol.Message) error {
	if p.link == nil {
		return fmt.Errorf("dockerrt: no hello: %w", protocol.ErrMalformed)
	}
	frame, err := protocol.Encode(m, 0)
	if err == nil {
		_, err = p.link.Write(frame)
	}
	return err
}
