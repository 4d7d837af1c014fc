package exec_test

import (
	"sync"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// BenchmarkExec is the time from CreateExec to EXEC_FINISHED at a client with one subscription.
func BenchmarkExec(b *testing.B) { benchmarkExecs(b, 1) }

// BenchmarkExecBurst is the time until the last of 50 execs, started at once, has finished.
func BenchmarkExecBurst(b *testing.B) { benchmarkExecs(b, 50) }

// BenchmarkExecByEngine is BenchmarkExec where all goes by way of the engine.
func BenchmarkExecByEngine(b *testing.B) { benchmarkExecs(b, 1, servertest.ByEngine) }

func benchmarkExecs(b *testing.B, atOnce int, options ...func(*dockerrt.Config)) {
	d := servertest.Start(b, options...)
	id := d.Create(&agboxv1.CreateSpec{})
	stream, err := d.SubscribeSandboxEvents(b.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	for b.Loop() {
		var group sync.WaitGroup
		for range atOnce {
			group.Go(func() {
				if _, err := d.CreateExec(b.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}}); err != nil {
					b.Error(err)
				}
			})
		}
		group.Wait()
		awaitFinished(b, stream, atOnce)
	}
}

func awaitFinished(b *testing.B, stream *raw.Stream, n int) {
	b.Helper()
	for n > 0 {
		event, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		if event.EventType == agboxv1.EventType_EXEC_FINISHED {
			n--
		}
	}
}
