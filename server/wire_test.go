package server_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// wire is a client that minds nothing: what it sends and reads are single frames.
type wire struct {
	net.Conn
	*http2.Framer
	block   bytes.Buffer
	headers *hpack.Encoder
}

// patience ends a test that would hang.
const patience = 2 * time.Minute

func connect(t *testing.T, socket string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func dialWire(t *testing.T, socket string, settings ...http2.Setting) *wire {
	t.Helper()
	w := &wire{Conn: connect(t, socket)}
	w.Framer = http2.NewFramer(w.Conn, w.Conn)
	w.headers = hpack.NewEncoder(&w.block)
	if _, err := io.WriteString(w.Conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return w
}

// open begins a call; its stream stays half open until request.
func (w *wire) open(stream uint32, method string) error {
	w.block.Reset()
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "agboxd"}, {":path", "/agbox.v1.SandboxService/" + method},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := w.headers.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	return w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: w.block.Bytes(), EndHeaders: true})
}

func (w *wire) request(stream uint32, message proto.Message) error {
	body, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	return w.WriteData(stream, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...))
}

func (w *wire) subscribe(stream uint32, sandboxID string) error {
	return errors.Join(w.open(stream, "SubscribeSandboxEvents"),
		w.request(stream, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: sandboxID}))
}

// until reads frames until one is accepted.
func (w *wire) until(accept func(http2.Frame) bool) error {
	for {
		frame, err := w.ReadFrame()
		if err != nil {
			return err
		}
		if accept(frame) {
			return nil
		}
	}
}

// roundTrip returns once the daemon has taken in all that was sent before.
func (w *wire) roundTrip(also func(http2.Frame)) error {
	sent := make(chan error, 1)
	go func() { sent <- w.WritePing(false, [8]byte{'d', 'o', 'n', 'e'}) }()
	return errors.Join(w.until(func(frame http2.Frame) bool {
		if also != nil {
			also(frame)
		}
		ping, ok := frame.(*http2.PingFrame)
		return ok && ping.IsAck()
	}), <-sent)
}

// connections counts the daemon's ends of connections to its socket.
func connections(t *testing.T, socket string) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	count := -1 // the listener
	for line := range strings.Lines(string(table)) {
		if strings.HasSuffix(strings.TrimSpace(line), " "+socket) {
			count++
		}
	}
	return count
}

// isReset reports whether the daemon closed a connection with something of ours unread.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
