package execlog

import (
	"os"
	"sync"
	"time"
)

// How long a file is left alone between two looks: at first and after each change, and at most.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

// looks wakes a watch when a look at its file shows a change. The intervals double while nothing changes.
type looks struct {
	watch *Watch

	mu      sync.Mutex
	timer   *time.Timer
	pause   time.Duration
	seen    os.FileInfo // nil for no file
	stopped bool
}

func startLooks(w *Watch) *looks {
	l := &looks{watch: w, pause: firstLook}
	l.seen, _ = os.Lstat(w.path)
	l.mu.Lock() // before the timer is known
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.pause, l.look)
	return l
}

func (l *looks) look() {
	now, _ := os.Lstat(l.watch.path)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	if changed(l.seen, now) {
		l.seen, l.pause = now, firstLook
		l.watch.wake()
	} else {
		l.pause = min(2*l.pause, lastLook)
	}
	l.timer.Reset(l.pause)
}

func changed(before, now os.FileInfo) bool {
	if before == nil || now == nil {
		return (before == nil) != (now == nil)
	}
	return !os.SameFile(before, now) || before.Size() != now.Size() || !before.ModTime().Equal(now.ModTime())
}

func (l *looks) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
}
