package server_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestOversizedRequests: what is too large is refused with a reason, and the connection stays usable.
func TestOversizedRequests(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	large := strings.Repeat("x", 5<<20)
	create := func(yaml string) error {
		_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: d.Image}, ConfigYaml: []byte(yaml)})
		return err
	}
	_, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"echo", large}})
	servertest.Refused(t, err, codes.ResourceExhausted, "REQUEST_TOO_LARGE", "")
	if err == nil || !strings.Contains(err.Error(), "more than 4194304") {
		t.Errorf("the message is %v", err)
	}
	if err := create(strings.Repeat("x", 20<<20)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("20 MB are answered with %v", err)
	}
	servertest.Refused(t, create("labels: {a: "+large[:3<<20]+"}"), codes.InvalidArgument, "CONFIG_YAML_TOO_LARGE", "config_yaml")
	servertest.Refused(t, create(strings.Repeat("[", 900<<10)), codes.InvalidArgument, "CONFIG_YAML_TOO_LARGE", "config_yaml")
	servertest.Refused(t, create(strings.Repeat("- ", 400<<10)), codes.InvalidArgument, "CONFIG_YAML_TOO_LARGE", "config_yaml")
	laughs := "envs: &a0 {k0: ha}\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("x%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 12), ", "))
	}
	if err := create(laughs); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nested aliases are answered with %v", err)
	}
	laughs = "mounts: [&m {source: /usr, target: /x}]\ncopies: &c [*m, *m, *m, *m]\nlabels: {a: *c}\n"
	if err := create(laughs); status.Code(err) != codes.InvalidArgument {
		t.Errorf("aliases of another kind are answered with %v", err)
	}
	servertest.Works(t, d, id)
}

// TestAnswersToLongRequests: a client that takes few headers, as most do, still learns what was wrong with a long request.
func TestAnswersToLongRequests(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	conn, err := grpc.NewClient("unix://"+d.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxHeaderListSize(8<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := agboxv1.NewSandboxServiceClient(conn)
	long := strings.Repeat("long-ä-", 200<<10)
	_, getErr := client.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: long})
	_, execErr := client.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: long, ExecId: long, Command: []string{"true"}})
	_, listErr := client.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{long: ""}})
	stream, err := client.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: long})
	if err != nil {
		t.Fatal(err)
	}
	_, streamErr := stream.Recv()
	for name, got := range map[string]struct {
		err  error
		want codes.Code
	}{
		"get": {getErr, codes.NotFound}, "exec": {execErr, codes.InvalidArgument},
		"list": {listErr, codes.InvalidArgument}, "subscribe": {streamErr, codes.NotFound},
	} {
		st := status.Convert(got.err)
		if st.Code() != got.want || len(st.Message()) > 2<<10 || len(st.Details()) == 0 {
			t.Errorf("%s: %v", name, got.err)
		}
	}
}

// TestHalfOpenConnections: a connection that does not say within 10 s what it wants is closed, and its descriptor
// comes back.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	before := connections(t, d.Socket())
	var closed sync.WaitGroup
	for i := range 500 {
		conn := connect(t, d.Socket())
		if _, err := io.WriteString(conn, []string{"", "P", http2.ClientPreface[:12], http2.ClientPreface}[i%4]); err != nil {
			t.Fatal(err)
		}
		closed.Go(func() {
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("connection %d ends with %v", i, err)
			}
		})
	}
	for range 20 {
		servertest.Works(t, d, id)
	}
	closed.Wait()
	if after := connections(t, d.Socket()); after != before {
		t.Errorf("the daemon has %d connections, and had %d", after, before)
	}
	servertest.Works(t, d, id)
}

// maxStreams is how many calls one connection may have under way.
const maxStreams = 2048

// TestStreamsAreLimited: who asks for more streams than it was told to gets no more, and others are not concerned.
func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	const streams = 10_000
	w := dialWire(t, d.Socket())
	sent := make(chan error, 1)
	go func() {
		for i := range uint32(streams) {
			if err := w.subscribe(2*i+1, id); err != nil {
				sent <- err
				return
			}
		}
		sent <- w.WritePing(false, [8]byte{1})
	}()
	told, held := uint32(0), 0
	if err := w.until(func(frame http2.Frame) bool {
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if limit, ok := frame.Value(http2.SettingMaxConcurrentStreams); ok {
				told = limit
			}
		case *http2.RSTStreamFrame:
			if frame.ErrCode == http2.ErrCodeRefusedStream {
				held++
			}
		case *http2.PingFrame:
			return frame.IsAck()
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if told != maxStreams || held != streams-maxStreams {
		t.Errorf("the limit is said to be %d, and %d of %d streams are refused", told, held, streams)
	}
	servertest.Works(t, d, id)
}

// TestBadFrames: whoever does not keep to HTTP/2, or pings without end, is sent away.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	for name, send := range map[string]func(*wire) error{
		"pings": func(w *wire) error {
			for range 10 {
				if err := w.WritePing(false, [8]byte{}); err != nil {
					return err
				}
			}
			return nil
		},
		"noise": func(w *wire) error {
			_, err := io.WriteString(w.Conn, strings.Repeat("noise", 1000))
			return err
		},
		"stream 0": func(w *wire) error {
			return w.WriteRawFrame(http2.FrameData, 0, 0, []byte("x"))
		},
		"a frame of 16 MB": func(w *wire) error {
			_, err := io.WriteString(w.Conn, "\xff\xff\xff\x00\x00\x00\x00\x00\x01")
			return err
		},
		"endless headers": func(w *wire) error {
			if err := w.open(1, "Ping"); err != nil {
				return err
			}
			for range 100 {
				if err := w.WriteContinuation(1, false, make([]byte, 16<<10)); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, d.Socket())
			if err := w.roundTrip(nil); err != nil {
				t.Fatal(err)
			}
			_ = send(w) // it may be sent away before it is done
			if _, err := io.Copy(io.Discard, w.Conn); err != nil && !isReset(err) {
				t.Errorf("it is not sent away: %v", err)
			}
			servertest.Works(t, d, id)
		})
	}
}
