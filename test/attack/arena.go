package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// patience is for what takes milliseconds, on a machine that has much else to do. Whatever stalls a daemon or a sandbox
// does so for longer: a lease for 45 s, a pipe for good.
const patience = 15 * time.Second

// arena is a daemon with victims and attackers.
type arena struct {
	*chaos.Stage
	config  config
	prefix  string
	program string // of package inside, on this host

	mu       sync.Mutex
	made     int
	ids      []string
	underway []string
	problems []string
}

func newArena(ctx context.Context, c config) (_ *arena, err error) {
	a := &arena{config: c, prefix: fmt.Sprintf("attack%d", os.Getpid())}
	if a.program, err = dockertest.Program("inside", "./test/attack/inside"); err != nil {
		return nil, err
	}
	if a.Stage, err = chaos.NewStage(ctx, c.agboxd, c.dir); err != nil {
		return nil, err
	}
	return a, nil
}

// problem notes that something is not as it must be, with what was attacked at that time.
func (a *arena) problem(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if len(a.underway) > 0 {
		text += " (played at that time: " + strings.Join(a.underway, ", ") + ")"
	}
	a.problems = append(a.problems, text)
	fmt.Fprintln(a.config.out, "PROBLEM:", text)
}

// begin notes that an attack is being played, until the function that it returns is called.
func (a *arena) begin(name string) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.underway = append(a.underway, name)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.underway = slices.Delete(a.underway, slices.Index(a.underway, name), slices.Index(a.underway, name)+1)
	}
}

// box is one sandbox.
type box struct {
	*arena
	id   string
	spec sdk.Spec
	// shared is a directory of the host that the sandbox has at /shared and may write to.
	shared string
}

// prepared returns a sandbox that is not created yet.
func (a *arena) prepared(name string, spec sdk.Spec, prepare func(*box, *sdk.Spec) error) (*box, error) {
	a.mu.Lock()
	a.made++
	b := &box{arena: a, id: fmt.Sprintf("%s-%d-%s", a.prefix, a.made, name), spec: spec}
	a.ids = append(a.ids, b.id)
	a.mu.Unlock()
	b.shared = filepath.Join(a.config.dir, "m", b.id)
	if err := errors.Join(os.MkdirAll(b.shared, 0o777), os.Chmod(b.shared, 0o777)); err != nil {
		return nil, err
	}
	b.spec.Image = a.Image
	b.spec.Mounts = []sdk.Mount{{Source: a.program, Target: "/inside"}, {Source: b.shared, Target: "/shared", Writable: true}}
	if prepare == nil {
		return b, nil
	}
	return b, prepare(b, &b.spec)
}

// start creates it and waits until it is READY.
func (b *box) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	_, err := b.SDK.CreateSandbox(ctx, b.spec, sdk.WithSandboxID(b.id))
	return err
}

// remove deletes the sandbox, whatever it has come to, and finds what is left of it.
func (b *box) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	if err := b.SDK.Delete(ctx, b.id); err != nil && !errors.Is(err, sdk.ErrSandboxNotFound) {
		return fmt.Errorf("it cannot be deleted: %w", err)
	}
	left, err := dockertest.Objects(ctx, b.Engine, b.id)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("deleted, it leaves %v", left)
	}
	return nil
}

// within does something that must have come to an end, good or bad, before the time is over.
func within(ctx context.Context, limit time.Duration, what string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %s after %v: %w", errStalled, what, time.Since(began).Round(time.Millisecond), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// errStalled: something that must end has not.
var errStalled = errors.New("it hangs")

// ended takes any end but none for a good one.
func ended(err error) error {
	if errors.Is(err, errStalled) {
		return err
	}
	return nil
}
