package actors_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// counter counts the records of a log that hold a text.
type counter struct {
	text  string
	count atomic.Int64
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *counter) WithGroup(string) slog.Handler            { return c }

func (c *counter) Handle(_ context.Context, record slog.Record) error {
	if strings.Contains(record.Message, c.text) {
		c.count.Add(1)
	}
	return nil
}

// TestRecordingBacksOff: an event that the log cannot take is tried again and again, less and less often, and is recorded
// once the log takes events again.
func TestRecordingBacksOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.end()
		tries := &counter{text: "event could not be recorded"}
		w.logger = slog.New(tries)
		w.start()
		w.create("box-1", spec)
		ended := make(chan struct{})
		w.runtime.Run = func(context.Context, *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
			<-ended
			return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED}, nil
		}
		w.exec("box-1", "exec-1")
		// The log takes nothing while another file is in its place.
		if err := errors.Join(os.Rename(w.path, w.path+".ours"), os.WriteFile(w.path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		close(ended)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := tries.count.Load(); n < 10 || n > 60 {
			t.Errorf("in ten minutes it was tried %d times", n)
		}
		if err := os.Rename(w.path+".ours", w.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED")
	})
}
