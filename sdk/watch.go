package sdk

import (
	"os"
	"sync"
	"time"
)

// watch tells when files may have appeared or grown, by a token in the wake channel of each.
type watch struct {
	wakes map[string]chan struct{}
	stop  func()
}

// newWatch watches the files; close must follow. Where the system cannot tell (no inotify, or no
// instance of it left), it looks at them again and again instead, for as long as it is open.
func newWatch(paths ...string) *watch {
	w := &watch{wakes: map[string]chan struct{}{}}
	for _, path := range paths {
		w.wakes[path] = make(chan struct{}, 1)
	}
	stop, err := w.notify()
	if err != nil {
		stop = w.look()
	}
	w.stop = stop
	return w
}

// close ends the watch and waits until nothing of it is left.
func (w *watch) close() { w.stop() }

func (w *watch) wake(path string) {
	select {
	case w.wakes[path] <- struct{}{}:
	default: // a token is waiting already
	}
}

// How long the files are left alone between two looks: at first and after each change, and at most.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

// look wakes for what has changed since it was looked at last, and at first. The intervals double while nothing changes.
func (w *watch) look() (stop func()) {
	var group sync.WaitGroup
	done := make(chan struct{})
	seen := map[string]int64{} // sizes, -1 for no file
	for path := range w.wakes {
		seen[path] = -1
		w.wake(path)
	}
	group.Go(func() {
		for pause := firstLook; ; pause = min(2*pause, lastLook) {
			for path, before := range seen {
				now := int64(-1)
				if info, err := os.Lstat(path); err == nil {
					now = info.Size()
				}
				if now != before {
					seen[path], pause = now, firstLook
					w.wake(path)
				}
			}
			timer := time.NewTimer(pause)
			select {
			case <-done:
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
	}
}
