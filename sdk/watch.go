package sdk

import (
	"sync"
	"time"
)

// watch tells when files may have appeared or grown, by a token in the wake channel of each.
type watch struct {
	wakes map[string]chan struct{}
	stop  func()
}

// newWatch watches the files; close must follow. Where the system cannot tell (no inotify, or no
// instance of it left), it wakes in a slow rhythm instead, for as long as it is open.
func newWatch(paths ...string) *watch {
	w := &watch{wakes: map[string]chan struct{}{}}
	for _, path := range paths {
		w.wakes[path] = make(chan struct{}, 1)
	}
	stop, err := w.notify()
	if err != nil {
		stop = w.tick(100 * time.Millisecond)
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

func (w *watch) tick(every time.Duration) (stop func()) {
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			for path := range w.wakes {
				w.wake(path)
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
	}
}
