package runtime

import (
	"context"
	"io"
)

// Connection is one to a port of a sandbox. Close may be called by any goroutine, and ends what reads and writes; CloseWrite tells
// the other side that no more comes.
type Connection interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Ports reaches what listens inside of sandboxes that run.
type Ports interface {
	// Dial connects to a TCP port on the sandbox's loopback. The connection must be closed before the sandbox ends, for it keeps
	// the sandbox's network alive. It fails with ErrPortClosed where nothing listens.
	Dial(ctx context.Context, sandboxID string, port uint16) (Connection, error)
}
