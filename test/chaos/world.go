// Package chaos proves that nothing is lost: clients that ask for valid things at random, a daemon that is killed
// meanwhile, an engine that fails, and a checker that compares what clients were told with what there is. Package
// proxy makes the engine fail, package checker looks.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
)

// Config is what a run of chaos is.
type Config struct {
	// Agboxd is the binary to run, Dir an empty directory with a short path that everything is kept in.
	Agboxd, Dir string
	// Seed decides what the clients ask for, when the daemon is killed, and which calls of the engine fail. How
	// these fall together is the scheduler's.
	Seed uint64
	// Rounds is how often the daemon is killed, at least: a round may kill it again while it recovers.
	Rounds int
	// Sandboxes is how many clients there are, each with one sandbox at a time.
	Sandboxes int
	// Window is how long a round goes on at most until the daemon is killed.
	Window time.Duration
	// Long, when it is not 0, has a run do something else: one command goes on for so long while the daemon is
	// restarted.
	Long time.Duration
	// Faults has calls of the engine fail.
	Faults bool
	// Primaries is the part of rounds in which a primary container is killed, too.
	Primaries float64
	// Panics is the part of writes to the log around which a sandbox's actor panics; Agboxd must be one of Build.
	Panics float64
	// EngineRoot is a directory for a private engine that is killed, too, in the part of rounds that Engines
	// says; "" uses the engine of the environment, and spares it.
	EngineRoot string
	Engines    float64
	// Warm is how many sandboxes the daemon keeps ready that were made ahead, of the kind that most creates ask for.
	Warm int
	// Progress is told of each round.
	Progress io.Writer
}

// Result is what a run has shown.
type Result struct {
	*checker.Report
	Kills, PrimaryKills, EngineKills, Panics int
	// Warm counts the sandboxes that took one that was made ahead, as far as databases of dead daemons showed.
	Warm   int
	Faults map[string]int
	// Served counts the requests of clients that were accepted, by what they ask for.
	Served map[string]int
}

// world is everything that takes part.
type world struct {
	Stage
	config Config
	prefix string
	tree   string // on the host, which sandboxes have copy-on-write
	random *rand.Rand
	own    *Engine      // nil: the engine is not ours to kill
	proxy  *proxy.Proxy // nil without faults
	// client is the one below SDK, which is for what goes on over the daemon's death: input of commands.
	client  *raw.Client
	record  *checker.Record
	clients []*client
	work    sync.WaitGroup
	result  Result

	mu       sync.Mutex
	accepted map[string]int
}

// served counts an accepted request by the first word of what it asks for.
func (w *world) served(what string) {
	word, _, _ := strings.Cut(what, " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted[word]++
}

// Run goes through the rounds, deletes everything, and ends the daemon. What it found is in the result; an error
// means that it could not go on, and then the result tells of what was found until then. A daemon that breaks its
// word is ErrViolations.
func Run(ctx context.Context, config Config) (result Result, err error) {
	w, err := newWorld(ctx, config)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		w.work.Wait()
		err = errors.Join(err, w.close())
	}()
	if config.Long > 0 {
		err = w.long(ctx)
	} else {
		err = w.rounds(ctx)
	}
	w.result.Report, w.result.Warm = w.Checker.Report(), w.Checker.Warm()
	w.mu.Lock()
	w.result.Served = maps.Clone(w.accepted)
	w.mu.Unlock()
	if w.proxy != nil {
		w.result.Faults = w.proxy.Faults()
	}
	crashes, bad := w.Daemon.Crashes()
	w.result.Panics, err = crashes, errors.Join(err, bad)
	if err == nil && len(w.result.Violations()) > 0 {
		err = ErrViolations
	}
	return w.result, err
}

func newWorld(ctx context.Context, config Config) (_ *world, err error) {
	w := &world{config: config, prefix: fmt.Sprintf("chaos%d-%d", config.Seed, os.Getpid()), accepted: map[string]int{}}
	w.random = rand.New(rand.NewPCG(config.Seed, 0))
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if config.EngineRoot != "" {
		if w.own, err = NewEngine(ctx, config.EngineRoot, true); err != nil {
			return nil, err
		}
	}
	if err := w.open(ctx, w.own); err != nil {
		return nil, err
	}
	if err := w.plant(); err != nil {
		return nil, err
	}
	host := w.Engine.DaemonHost()
	if config.Faults {
		if w.proxy, err = proxy.New(socketOf(host), filepath.Join(config.Dir, "proxy"), config.Seed); err != nil {
			return nil, err
		}
		host = w.proxy.Host()
	}
	if err := w.direct(config.Agboxd, config.Dir, host); err != nil {
		return nil, err
	}
	if config.Warm > 0 {
		if err := w.Daemon.Warm(w.Image, config.Warm); err != nil {
			return nil, err
		}
	}
	w.client, w.record = w.SDK.Raw(), w.Checker.Record
	w.Daemon.Panics = config.Panics
	w.Checker.Faults = config.Faults || config.Engines > 0
	w.Checker.Panics = config.Panics > 0
	for n := range config.Sandboxes {
		w.clients = append(w.clients, newClient(w, n, config.Seed))
	}
	return w, nil
}

// planted is what the one file in the tree holds.
const planted = "of the host\n"

// plant makes the tree.
func (w *world) plant() error {
	w.tree = filepath.Join(w.config.Dir, "tree")
	file := filepath.Join(w.tree, "file")
	return errors.Join(os.Mkdir(w.tree, 0o777), os.Chmod(w.tree, 0o777), os.WriteFile(file, []byte(planted), 0o666), os.Chmod(file, 0o666))
}

// judgeTree finds what sandboxes did to the tree: nothing.
func (w *world) judgeTree() {
	entries, err := os.ReadDir(w.tree)
	text, readErr := os.ReadFile(filepath.Join(w.tree, "file"))
	if err = errors.Join(err, readErr); err != nil || len(entries) != 1 || string(text) != planted {
		w.Checker.Report().Add(checker.HostChanged, w.tree, fmt.Sprintf("it holds %v, its file %q, %v", entries, text, err))
	}
}

func (w *world) close() error {
	errs := []error{w.Close()}
	if w.proxy != nil {
		errs = append(errs, w.proxy.Close())
	}
	if w.own != nil {
		errs = append(errs, w.own.End())
	}
	return errors.Join(errs...)
}
