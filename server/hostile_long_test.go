//go:build long

package server_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestLongSubscribersThatNeverRead: each is an old cursor and costs no more than the log's next few events.
func TestLongSubscribersThatNeverRead(t *testing.T) {
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	longLog(t, d, id, 50_000)
	servertest.Works(t, d, id)
	const subscribers, bound = 200, 256 << 10
	before := heap()
	// This one opens no window, so nothing but the headers of an answer can be sent.
	w := dialWire(t, d.Socket(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(subscribers) {
		if err := w.subscribe(2*i+1, id); err != nil {
			t.Fatal(err)
		}
	}
	answers := 0
	if err := w.until(func(frame http2.Frame) bool {
		if _, ok := frame.(*http2.DataFrame); ok {
			t.Error("data was sent into a closed window")
		}
		if _, ok := frame.(*http2.HeadersFrame); ok {
			answers++
		}
		return answers == subscribers
	}); err != nil {
		t.Fatal(err)
	}
	// From here on it does not even read the socket.
	servertest.Works(t, d, id)
	if grown := int64(heap()) - int64(before); grown > subscribers*bound {
		t.Errorf("%d subscribers that never read hold %d bytes", subscribers, grown)
	} else {
		t.Logf("%d bytes for each of %d subscribers that never read", grown/subscribers, subscribers)
	}
	stream := servertest.Follow(t, d, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	for want := uint64(1); want <= 50_000; want++ {
		if event := servertest.Next(t, stream); event.Sequence != want {
			t.Fatalf("in place of event %d comes %v", want, event)
		}
	}
}

// TestLongThousandSubscribers: each gets every event once and in order.
func TestLongThousandSubscribers(t *testing.T) {
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	const subscribers, execs = 1000, 20
	const last = 3 + 2*execs
	clients := []*raw.Client{d.Client}
	for range 3 {
		client, err := raw.Dial(raw.WithSocket(d.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var following, done sync.WaitGroup
	for i := range subscribers {
		following.Add(1)
		done.Go(func() {
			replayed := sync.OnceFunc(following.Done)
			defer replayed()
			stream, err := clients[i%len(clients)].SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			for want := uint64(1); want <= last; want++ {
				event, err := stream.Recv()
				if err != nil || event.Sequence != want || event.Replay != (want <= 3) {
					t.Errorf("subscriber %d gets %v, %v in place of %d", i, event, err, want)
					return
				}
				if want == 3 {
					replayed()
				}
			}
		})
	}
	following.Wait()
	for range execs {
		d.Exec(id, "true")
	}
	done.Wait()
}

// TestLongRapidReset: calls that are given up at once do not pile up.
func TestLongRapidReset(t *testing.T) {
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	w := dialWire(t, d.Socket())
	sent := make(chan error, 1)
	go func() {
		for i := range uint32(20_000) {
			if err := errors.Join(w.subscribe(2*i+1, id), w.WriteRSTStream(2*i+1, http2.ErrCodeCancel)); err != nil {
				sent <- err
				return
			}
		}
		sent <- w.WritePing(false, [8]byte{1})
	}()
	most := 0
	if err := w.until(func(frame http2.Frame) bool {
		most = max(most, runtime.NumGoroutine())
		ping, ok := frame.(*http2.PingFrame)
		return ok && ping.IsAck()
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if most > maxStreams+500 {
		t.Errorf("%d goroutines were there at once", most)
	}
	servertest.Works(t, d, id)
}

// longLog gives a sandbox of a READY sandbox's log that many more events, and returns the newest sequence.
func longLog(t *testing.T, d *servertest.Daemon, id string, events int) uint64 {
	t.Helper()
	d.Stop()
	defer d.StartAgain()
	db, err := persist.Open(filepath.Join(d.Dir(), "ids.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, newest, err := db.Bounds(id)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	for range events / 1000 {
		entry := persist.Entry{SandboxID: id, After: newest, At: at}
		for range 1000 {
			newest++
			entry.Events = append(entry.Events, &agboxv1.SandboxEvent{
				EventId: fmt.Sprintf("%036d", newest), Sequence: newest, SandboxId: id, OccurredAt: timestamppb.New(at),
				EventType: agboxv1.EventType_SANDBOX_SERVICE_READY, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY,
				Details: &agboxv1.SandboxEvent_Service{Service: &agboxv1.ServiceEventDetails{ServiceName: "database"}},
			})
		}
		if err := db.Append(entry); err != nil {
			t.Fatal(err)
		}
	}
	return newest
}
