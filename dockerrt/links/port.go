package links

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/guest/link"
)

// dialTime is how long a connection may take to be made: what listens on a loopback answers at once, or its backlog is full.
const dialTime = 10 * time.Second

// Dial is that of runtime.Ports.
func (ls *Links) Dial(ctx context.Context, sandboxID string, port uint16) (runtime.Connection, error) {
	l, err := ls.Booted(sandboxID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if l.Relayed() {
		return ls.dialRelayed(ctx, sandboxID, port)
	}
	conn, err := l.Dial(ctx, port)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, link.ErrPortClosed):
		return nil, fmt.Errorf("%w: %d", runtime.ErrPortClosed, port)
	case errors.Is(err, link.ErrClosed), errors.Is(err, link.ErrLost), errors.Is(err, syscall.ECONNRESET):
		return nil, fmt.Errorf("%w: %w", runtime.ErrPortReset, err)
	}
	return nil, err
}

// dialRelayed has agbox-init carry the connection inside, and the engine what that reads and writes.
func (ls *Links) dialRelayed(ctx context.Context, sandboxID string, port uint16) (runtime.Connection, error) {
	stream, err := ls.attach(ctx, sandboxID, "connect", strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	c := &relayed{stream: stream}
	var unpacked *io.PipeWriter
	c.output, unpacked = io.Pipe()
	c.unpacking.Go(func() {
		_, err := stdcopy.StdCopy(unpacked, io.Discard, stream.Reader)
		unpacked.CloseWithError(err)
	})
	stop := context.AfterFunc(ctx, stream.Close)
	var first [1]byte
	_, err = io.ReadFull(c, first[:])
	if !stop() || err != nil {
		c.Close()
		return nil, fmt.Errorf("port %d cannot be reached: the engine carried no answer: %w", port, errors.Join(ctx.Err(), err))
	}
	switch errno := syscall.Errno(first[0]); errno {
	case 0:
		return c, nil
	case syscall.ECONNREFUSED, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT:
		err = fmt.Errorf("%w: %d", runtime.ErrPortClosed, port)
	default:
		err = fmt.Errorf("port %d cannot be reached: %w", port, errno)
	}
	c.Close()
	return nil, err
}

// relayed is a connection that the engine carries.
type relayed struct {
	stream    types.HijackedResponse
	output    *io.PipeReader
	unpacking sync.WaitGroup
}

func (c *relayed) Read(p []byte) (int, error)  { return c.output.Read(p) }
func (c *relayed) Write(p []byte) (int, error) { return c.stream.Conn.Write(p) }
func (c *relayed) CloseWrite() error           { return c.stream.CloseWrite() }

func (c *relayed) Close() error {
	c.stream.Close()
	err := c.output.Close()
	c.unpacking.Wait()
	return err
}
