package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sync/errgroup"
)

// goroutines ends the daemon with SIGQUIT and counts what it says to have run.
func (a *arena) goroutines(ctx context.Context) (int, error) {
	from, err := a.logSize()
	if err != nil {
		return 0, err
	}
	if err := syscall.Kill(a.Daemon.Pid(), syscall.SIGQUIT); err != nil {
		return 0, err
	}
	select {
	case <-a.Daemon.Ended():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	a.Daemon.Kill() // it has ended: Start may be called
	said, err := a.logSince(from)
	return len(goroutine.FindAll(said, -1)), err
}

var goroutine = regexp.MustCompile(`(?m)^goroutine \d+ .*\[`)

// clear deletes what there is and finds what is left. The daemon does not run afterwards.
func (a *arena) clear(ctx context.Context, victims []*victim, before use, goroutinesBefore int) (after use, goroutinesAfter int, err error) {
	var deleting errgroup.Group
	for _, v := range victims {
		deleting.Go(func() error { return v.remove(ctx) })
	}
	if err := deleting.Wait(); err != nil {
		a.problem("a victim: %v", err)
	}
	listed, err := a.SDK.ListSandboxes(ctx, listAll)
	if err != nil {
		return after, 0, err
	}
	for _, s := range listed {
		a.problem("sandbox %s is still there: %s", s.ID, s.State)
	}
	// What was under way ends in its own time: retries, and connections that nobody uses.
	for over := time.Now().Add(patience); ; pause(ctx, 200*time.Millisecond) {
		if after, err = usage(a.Daemon.Pid()); err != nil {
			return after, 0, err
		}
		if after.descriptors <= before.descriptors+fewMore || time.Now().After(over) {
			break
		}
	}
	if after.descriptors > before.descriptors+fewMore {
		a.problem("the daemon has %d descriptors, and had %d", after.descriptors, before.descriptors)
	}
	if goroutinesAfter, err = a.goroutines(ctx); err != nil {
		return after, 0, err
	}
	if goroutinesAfter > goroutinesBefore+2*fewMore {
		a.problem("the daemon ran %d goroutines, and %d at the beginning; %s has them", goroutinesAfter, goroutinesBefore, a.Daemon.Log())
	}
	if err := a.Daemon.Start(ctx); err != nil {
		return after, goroutinesAfter, err
	}
	if err := a.Checker.Gone(ctx, a.ids); err != nil {
		return after, goroutinesAfter, err
	}
	for _, v := range a.Checker.Report().Violations() {
		a.problem("%v", v)
	}
	return after, goroutinesAfter, errors.Join(a.stop(ctx), a.nothing())
}

// fewMore is what a daemon may hold beyond the beginning: connections to the engine that it keeps for later.
const fewMore = 10

// nothing checks that a daemon that has ended has no packet rules and no socket any more.
func (a *arena) nothing() error {
	if _, err := os.Stat(a.Daemon.Socket()); err == nil {
		a.problem("the API socket is left")
	}
	instance, err := os.ReadFile(filepath.Join(a.Daemon.Data(), "instance"))
	if err != nil {
		return err
	}
	id, _, _ := strings.Cut(string(instance), "\n")
	sum := sha256.Sum256([]byte(id))
	rules, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := rules.ListTables()
	if errors.Is(err, os.ErrPermission) {
		return nil // then the daemon made none
	} else if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name == "agbox-"+hex.EncodeToString(sum[:4]) {
			a.problem("the table of packet rules %s is left", t.Name)
		}
	}
	return nil
}
