package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// heap is what this process holds by the collector's count, in bytes.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// TestFollowersThatNeverRead: each costs the daemon no more than what gRPC takes of it in advance and a chunk, one connection and
// all together have only so many, and the place of one that leaves is free again.
func TestFollowersThatNeverRead(t *testing.T) {
	fake := actorstest.New()
	fake.Run, fake.Logs = fake.UntilCancelled, t.TempDir()
	f := startFleet(t, actors.Config{}, fake)
	f.create("box-1", nil)
	if _, err := f.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: "exec-1", Command: []string{"yes"}}); err != nil {
		t.Fatal(err)
	}
	log, _ := fake.ExecLogs("box-1", "exec-1")
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o700), os.WriteFile(log, make([]byte, 8<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	const followers, bound = 300, 200_000
	before := heap()
	// Nothing but the headers of an answer can be sent to these.
	unread := func(n int) *wire {
		t.Helper()
		w := dialWire(t, f.Socket(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range uint32(n) {
			if err := w.open(2*i+1, "ReadExecLog"); err != nil {
				t.Fatal(err)
			}
			if err := w.request(2*i+1, &agboxv1.ReadExecLogRequest{ExecId: "exec-1", Follow: true}); err != nil {
				t.Fatal(err)
			}
		}
		answers := 0
		if err := w.until(func(frame http2.Frame) bool {
			if headers, ok := frame.(*http2.HeadersFrame); ok && !headers.StreamEnded() {
				answers++
			}
			return answers == n
		}); err != nil {
			t.Fatal(err)
		}
		return w
	}
	one := func(c *raw.Client) error {
		stream, err := c.ReadExecLog(t.Context(), &agboxv1.ReadExecLogRequest{ExecId: "exec-1", TailBytes: new(uint64(1))})
		if err != nil {
			return err
		}
		defer stream.Close()
		_, err = stream.Recv()
		return err
	}
	held := unread(followers)
	var grown int64
	for range 20 { // the daemon fills its buffers meanwhile
		if err := one(f.Client); err != nil {
			t.Fatal("beside them one that reads: ", err)
		}
		grown = max(grown, int64(heap())-int64(before))
	}
	t.Logf("%d bytes for each of %d followers that never read", grown/followers, followers)
	if grown > followers*bound {
		t.Errorf("%d followers that never read hold %d bytes", followers, grown)
	}

	other, err := raw.Dial(raw.WithSocket(f.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	follow := func() error {
		stream, err := f.ReadExecLog(t.Context(), &agboxv1.ReadExecLogRequest{ExecId: "exec-1", Follow: true})
		if err != nil {
			return err
		}
		t.Cleanup(stream.Close)
		_, err = stream.Recv()
		return err
	}
	for i := followers; i < 320; i++ {
		if err := follow(); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	servertest.Refused(t, follow(), codes.ResourceExhausted, "TOO_MANY_STREAMS", "", "with 4 calls or more together have 320 calls under way")
	if err := one(other); err != nil {
		t.Errorf("who follows one thing beside those who follow everything: %v", err)
	}
	held.Close()
	for i, deadline := 320-followers, time.Now().Add(patience); i < 320; { // as places become free
		if err := follow(); err == nil {
			i++
		} else if time.Now().After(deadline) {
			t.Fatalf("with %d on this connection: %v", i, err)
		}
	}
	servertest.Refused(t, follow(), codes.ResourceExhausted, "TOO_MANY_STREAMS", "", "this connection has 320 calls under way")
	if err := one(other); err != nil {
		t.Errorf("by another connection: %v", err)
	}
	if _, err := f.CancelExec(t.Context(), &agboxv1.CancelExecRequest{ExecId: "exec-1"}); err != nil {
		t.Error(err)
	}
}
