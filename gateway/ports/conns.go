package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// Each connection into a sandbox is a stream to the daemon, which has 2048 of them for all that the gateway does: so many are for ports,
// which strangers may use, in all and into one sandbox.
const (
	maxConns    = 512
	maxBoxConns = 128
)

var errFull = errors.New("ports: too many connections")

func (h *Handler) dial(ctx context.Context, _, address string) (net.Conn, error) {
	id, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	client, err := h.config.Client(id)
	if err != nil {
		return nil, err
	}
	release, ok := h.conns.Take(id)
	if !ok {
		return nil, fmt.Errorf("%w to %s", errFull, id)
	}
	conn, err := client.DialPort(ctx, id, uint16(port))
	if err != nil {
		release()
		return nil, err
	}
	return &counted{conn, release}, nil
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
