package execlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Notices tells readers when their files have appeared or grown. All share one inotify instance, of which a user gets
// only 128 (fs.inotify.max_user_instances); it and its two goroutines are there only while somebody watches. Sandboxes whose
// processes have the daemon's uid take from the same 128: where the system has none left, files are looked at again and
// again instead. The zero value is ready, and safe for concurrent use.
type Notices struct {
	// Blind, unless nil, is called once, with the reason, when the system has no notices left to give. Set it before use.
	Blind func(error)
	blind sync.Once

	// setup guards what is watched. Whoever passes on notices never takes it.
	setup     sync.Mutex
	watcher   *fsnotify.Watcher
	delivered chan struct{}  // closed when nothing more is passed on
	uses      map[string]int // by watched path

	mu      sync.Mutex
	watches map[string]map[*Watch]struct{} // by the file's path
}

// Watch is one reader's interest in one file. Close must follow.
type Watch struct {
	notices *Notices
	path    string
	watched string // path, or its directory
	grown   chan struct{}
	looks   *looks // nil where the system tells
}

// Watch begins to tell of a file, which need not be there yet, but its directory: without that it fails with
// fs.ErrNotExist.
func (n *Notices) Watch(path string) (*Watch, error) {
	path = filepath.Clean(path)
	w := &Watch{notices: n, path: path, watched: filepath.Dir(path), grown: make(chan struct{}, 1)}
	n.enlist(w)
	err := n.use(w.watched)
	if errors.Is(err, errNoNotices) {
		n.discharge(w)
		return w, n.lookAgain(w, err)
	}
	if err != nil {
		n.discharge(w)
		return nil, err
	}
	w.wake()
	return w, nil
}

// lookAgain is for a watch that the system does not serve.
func (n *Notices) lookAgain(w *Watch, why error) error {
	if _, err := os.Stat(w.watched); err != nil {
		return fmt.Errorf("execlog: cannot watch %s: %w", w.watched, err)
	}
	n.blind.Do(func() {
		if n.Blind != nil {
			n.Blind(why)
		}
	})
	w.looks = startLooks(w)
	w.wake()
	return nil
}

// Grown yields when there may be more of the file than at the last yield, at first at once. Take it before looking at
// the file.
func (w *Watch) Grown() <-chan struct{} { return w.grown }

// Narrow spares the reader the notices of the file's neighbours. It is for whoever has opened the file.
func (w *Watch) Narrow() error {
	if w.watched == w.path || w.looks != nil {
		return nil
	}
	err := w.notices.use(w.path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoNotices) {
		return nil // removed meanwhile: it will not grow; or the directory's notices have to do
	} else if err != nil {
		return err
	}
	w.notices.unuse(w.watched)
	w.watched = w.path
	w.wake() // a notice of the directory that nobody passes on any more
	return nil
}

// Close ends the watch. The last one waits for the goroutines to end.
func (w *Watch) Close() {
	if w.looks != nil {
		w.looks.stop()
		return
	}
	w.notices.discharge(w)
	w.notices.unuse(w.watched)
}

func (w *Watch) wake() {
	select {
	case w.grown <- struct{}{}:
	default: // it has one to come back to
	}
}

func (n *Notices) enlist(w *Watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches == nil {
		n.watches = map[string]map[*Watch]struct{}{}
	}
	if n.watches[w.path] == nil {
		n.watches[w.path] = map[*Watch]struct{}{}
	}
	n.watches[w.path][w] = struct{}{}
}

func (n *Notices) discharge(w *Watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.watches[w.path], w)
	if len(n.watches[w.path]) == 0 {
		delete(n.watches, w.path)
	}
}

// use watches a path once more.
func (n *Notices) use(path string) (err error) {
	n.setup.Lock()
	defer n.setup.Unlock()
	if n.watcher == nil {
		if n.watcher, err = fsnotify.NewWatcher(); err != nil {
			return noNotices(path, err)
		}
		n.uses, n.delivered = map[string]int{}, make(chan struct{})
		go n.deliver(n.watcher, n.delivered)
	}
	if n.uses[path] == 0 {
		if err := n.watcher.Add(path); err != nil {
			n.endIfIdle()
			return noNotices(path, err)
		}
	}
	n.uses[path]++
	return nil
}

func noNotices(path string, err error) error {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %s: %w: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches", errNoNotices, path, err)
	}
	return fmt.Errorf("execlog: cannot watch %s: %w", path, err)
}

func (n *Notices) unuse(path string) {
	n.setup.Lock()
	defer n.setup.Unlock()
	if n.uses[path]--; n.uses[path] > 0 {
		return
	}
	delete(n.uses, path)
	_ = n.watcher.Remove(path) // it fails for what was removed from the disk, which is no longer watched
	n.endIfIdle()
}

// endIfIdle wants setup held.
func (n *Notices) endIfIdle() {
	if len(n.uses) > 0 {
		return
	}
	_ = n.watcher.Close() // what a close of inotify could fail with is of no use to anyone
	<-n.delivered
	n.watcher = nil
}

// deliver passes notices on until the watcher is closed.
func (n *Notices) deliver(watcher *fsnotify.Watcher, delivered chan<- struct{}) {
	defer close(delivered)
	failures := watcher.Errors
	for {
		select {
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			n.wake(event.Name)
		case _, open := <-failures: // notices were lost: anybody may have missed one
			if !open {
				failures = nil
				continue
			}
			n.wakeAll()
		}
	}
}

func (n *Notices) wake(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watches[path] {
		w.wake()
	}
}

func (n *Notices) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, watches := range n.watches {
		for w := range watches {
			w.wake()
		}
	}
}
