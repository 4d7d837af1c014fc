package dockerrt_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestSnapshotOfSnapshot: an engine takes the name from an image that another was made from, and keeps the image. The next daemon
// removes it once it can, and what somebody else made of a snapshot stays. Half a snapshot that an engine completes for a dead
// daemon is looked for when it appears.
func TestSnapshotOfSnapshot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start()
	image := dockertest.TinyImage(t, s.engine, dockertest.RootOnly)
	id := s.config.Instance + "-box"
	s.sandbox(d, id, &agboxv1.CreateSpec{Image: image})
	kept, err := d.CreateSnapshot(t.Context(), wanted(id, "parent", &agboxv1.CreateSpec{Image: image}))
	if err != nil {
		t.Fatal(err)
	}
	made := s.container(kept.Image, "")
	theirs, err := s.engine.ContainerCommit(t.Context(), made, container.CommitOptions{})
	if err == nil {
		err = s.engine.ContainerRemove(t.Context(), made, container.RemoveOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteSnapshot(t.Context(), "parent"); err != nil {
		t.Error(err)
	}
	d.Close()
	next := s.start()
	if _, err := next.Inventory(t.Context()); err != nil || len(s.images()) != 1 || s.images()[0].ID != theirs.ID {
		t.Errorf("%v; there are %v", err, s.images())
	}
	_, tag, _ := strings.Cut(kept.Image, ":")
	seen := make(missed, 8)
	watching, stop := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	since := time.Now() // the engine repeats what comes before the watch has begun
	watch.Go(func() { next.Watch(watching, since, seen) })
	defer watch.Wait()
	defer stop()
	if err := s.engine.ImageTag(t.Context(), theirs.ID, "agbox-half-made:"+tag+".x"); err != nil {
		t.Fatal(err)
	}
	<-seen
	if _, err := next.Inventory(t.Context()); err != nil || len(s.images()) != 0 {
		t.Errorf("%v; what lost its name stays: %v", err, s.images())
	}
}

// missed is a watcher that hears of gaps only.
type missed chan struct{}

func (m missed) Missed()                 { m <- struct{}{} }
func (m missed) ImagesChanged()          {}
func (m missed) Ended(string)            {}
func (m missed) Appeared(string)         {}
func (m missed) LinkLost(string, string) {}
