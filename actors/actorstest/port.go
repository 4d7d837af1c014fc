package actorstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/agbox-dev/agbox/actors/runtime"
)

var _ runtime.Ports = (*Runtime)(nil)

// Dial connects to a port of this machine's loopback: that is where played commands listen.
func (r *Runtime) Dial(ctx context.Context, sandboxID string, port uint16) (runtime.Connection, error) {
	if err := r.before(ctx, "dial "+sandboxID); err != nil {
		return nil, err
	}
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		var dialer net.Dialer
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err == nil {
			return conn.(*net.TCPConn), nil
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %d", runtime.ErrPortClosed, port)
	}
	return nil, err
}
