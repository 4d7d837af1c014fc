package observe

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/events"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/oplog"
)

// TestEventsWaitForNoDisk: what Docker tells is taken in, and passed on, while operation logs cannot be written, however many
// lines wait for them; a line that finds no directory is nobody's.
func TestEventsWaitForNoDisk(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	o := &Observer{log: log, engine: engine.New(nil, engine.Owner{Instance: "mine"}), oplogs: oplog.New(t.TempDir(), log)}
	o.oplogs.Open("box")
	notes := make(chan note, 2)
	free := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		<-free // the disk
		for n := range notes {
			o.oplogs.Append(n.Entry)
		}
	})
	for range 10 {
		for _, id := range []string{"box", "gone"} {
			o.noteEvent(events.Message{Type: events.ContainerEventType, Action: events.ActionDie, Actor: events.Actor{Attributes: map[string]string{
				engine.LabelInstance: "mine", engine.LabelSandbox: id, "name": "c", "exitCode": "7"}}}, notes)
		}
	}
	close(notes)
	close(free)
	writer.Wait()
	_, path := o.oplogs.Paths("box")
	text, err := os.ReadFile(path)
	if n := strings.Count(string(text), "engine: container c ended with exit code 7\n"); err != nil || n == 0 {
		t.Errorf("it tells %q, %v", text, err)
	}
	if entries, err := os.ReadDir(o.oplogs.Root()); err != nil || len(entries) != 1 {
		t.Errorf("there are logs of %v, %v", entries, err)
	}
}
