// Package build makes templates as E2B's SDKs describe them: a sandbox of the base image, the steps as commands in it, and a snapshot
// of what has come of them.
//
// It is no build by Docker's own builder, since only the daemon may talk to Docker, and a builder there would run what strangers wrote
// outside of the walls of a sandbox. Here a step has the walls, the network, the limits and the quotas that any sandbox has, and the
// daemon needs to know nothing new. There is no cache: each build does all of its steps.
//
// What is kept of a build lies in files, so that it can be asked for after a restart. A gateway that ends while it builds does not go on:
// the sandbox goes with its lease, and the build says why it failed.
package build

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// Statuses of a build.
const (
	Waiting  = "waiting"
	Building = "building"
	Ready    = "ready"
	Failed   = "error"
)

const (
	// maxAtOnce is how many builds run; others wait for their turn.
	maxAtOnce = 2
	// maxEntries and maxMessage bound the log of a build.
	maxEntries = 5000
	maxMessage = 4 << 10
	// maxLive is how many builds run or wait, maxKept how many are kept.
	maxLive = 100
	maxKept = 10_000
	// keptFor is how long a build and an upload are kept.
	keptFor = 24 * time.Hour
)

// ErrNone reports a build or an upload that is not there.
var ErrNone = errors.New("build: there is none")

// Entry is a line of a build's log.
type Entry struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

// Reason is why a build failed, and at which step: its number, "base" or "finalize".
type Reason struct {
	Message string `json:"message"`
	Step    string `json:"step,omitempty"`
}

// Build is one as it is known. Owner is whose it is; nobody else hears of it.
type Build struct {
	ID       string   `json:"id"`
	Owner    string   `json:"owner"`
	Template string   `json:"template"` // the id of the snapshot that it makes
	Name     string   `json:"name"`
	Tags     []string `json:"tags"`
	Status   string   `json:"status"`
	Log      []Entry  `json:"log"`
	Reason   *Reason  `json:"reason,omitempty"`
	// CPUs and MemoryBytes bound its sandboxes.
	CPUs        float64   `json:"cpus,omitempty"`
	MemoryBytes int64     `json:"memory,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
}

// Builds are those of one gateway, kept in a directory. Close must follow.
type Builds struct {
	dir  string
	log  *slog.Logger
	ctx  context.Context
	stop context.CancelFunc
	turn chan struct{}
	// taking has an entry for each upload that is being taken.
	taking chan struct{}

	running sync.WaitGroup
	mu      sync.Mutex
	live    map[string]*Build
}

// Open returns the builds that are kept in dir, which is made.
func Open(dir string, log *slog.Logger) (*Builds, error) {
	for _, d := range []string{dir, filepath.Join(dir, "builds"), filepath.Join(dir, "uploads")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("build: %w", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Builds{dir: dir, log: log, ctx: ctx, stop: stop, turn: make(chan struct{}, maxAtOnce), taking: make(chan struct{}, maxTaking), live: map[string]*Build{}}
	return b, nil
}

// Close ends what is being built, and returns when nothing of it is left here.
func (b *Builds) Close() {
	b.stop()
	b.running.Wait()
}

// New keeps a build that waits for its steps.
func (b *Builds) New(build Build) (Build, error) {
	b.expire()
	if kept, err := os.ReadDir(filepath.Join(b.dir, "builds")); err != nil || len(kept) >= maxKept {
		return Build{}, fmt.Errorf("%w: there are %d builds: they go a day after they ended", ErrFull, len(kept))
	}
	build.ID, build.Status, build.CreatedAt = newUUID(), Waiting, time.Now()
	return build, b.write(build)
}

// Get returns an owner's build.
func (b *Builds) Get(owner, id string) (Build, error) {
	if len(id) > 64 {
		return Build{}, ErrNone // it is none of ours
	}
	b.mu.Lock()
	live := b.live[id]
	var build Build
	if live != nil {
		build = *live
		build.Log = append([]Entry(nil), live.Log...)
	}
	b.mu.Unlock()
	if live == nil {
		text, err := os.ReadFile(b.record(id))
		if errors.Is(err, fs.ErrNotExist) {
			return Build{}, ErrNone
		}
		if err == nil {
			err = json.Unmarshal(text, &build)
		}
		if err != nil {
			return Build{}, fmt.Errorf("build: %s: %w", id, err)
		}
		if build.Status == Building {
			build.Status, build.Reason = Failed, &Reason{Message: "the gateway was ended while it built this: build it again"}
		}
	}
	if build.Owner != owner {
		return Build{}, ErrNone
	}
	return build, nil
}

// Start does a build's steps, and returns before they are done.
func (b *Builds) Start(client *sdk.Client, build Build, plan Plan) error {
	b.mu.Lock()
	if len(b.live) >= maxLive {
		b.mu.Unlock()
		return fmt.Errorf("%w: %d builds run or wait for their turn: try again later", ErrFull, maxLive)
	}
	if b.live[build.ID] != nil || build.Status != Waiting {
		b.mu.Unlock()
		return fmt.Errorf("%w: build %s was started already: begin another one", ErrStarted, build.ID)
	}
	live := &build
	live.Status = Building
	b.live[build.ID] = live
	b.mu.Unlock()
	if err := b.write(build); err != nil {
		b.mu.Lock()
		delete(b.live, build.ID)
		b.mu.Unlock()
		return err
	}
	b.running.Go(func() { b.run(client, live, plan) })
	return nil
}

// ErrStarted reports a build that has its steps.
var ErrStarted = errors.New("build: started")

func (b *Builds) run(client *sdk.Client, live *Build, plan Plan) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-b.ctx.Done():
	}
	run := &run{Builds: b, client: client, build: live, plan: plan, step: "base"}
	err := run.do(b.ctx)
	b.mu.Lock()
	live.Status = Ready
	if err != nil {
		live.Status, live.Reason = Failed, &Reason{Message: err.Error(), Step: run.step}
	}
	done := *live
	b.mu.Unlock()
	if b.ctx.Err() != nil {
		return // its record says that it was being built
	}
	if err := b.write(done); err != nil {
		b.log.Error("the result of a build was not kept", "build", done.ID, "error", err)
		return
	}
	b.mu.Lock()
	delete(b.live, done.ID)
	b.mu.Unlock()
}

// say adds to the log of a build that runs.
func (b *Builds) say(live *Build, entry Entry) {
	if len(entry.Message) > maxMessage {
		entry.Message = entry.Message[:maxMessage] + "…"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch len(live.Log) {
	case maxEntries:
		return
	case maxEntries - 1:
		entry.Message = "the log is full: nothing more is kept of it"
	}
	entry.Timestamp = time.Now()
	live.Log = append(live.Log, entry)
}

func (b *Builds) record(id string) string {
	return filepath.Join(b.dir, "builds", hex.EncodeToString([]byte(id))+".json")
}

func (b *Builds) write(build Build) error {
	text, err := json.Marshal(build)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return place(b.record(build.ID), func(file io.Writer) error {
		_, err := file.Write(text)
		return err
	})
}

// place puts a file in place as a whole, readable to this user alone.
func place(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	err = errors.Join(write(file), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return fmt.Errorf("build: %w", err)
	}
	return nil
}

// expire removes what is older than it is kept.
func (b *Builds) expire() {
	old := time.Now().Add(-keptFor)
	_ = filepath.WalkDir(b.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // whoever removed it meanwhile has done it
		}
		if info, err := entry.Info(); err == nil && info.ModTime().Before(old) {
			os.Remove(path)
		}
		return nil
	})
}

// newUUID is a random one, version 4.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
