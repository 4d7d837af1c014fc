package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/persist"
)

// findings are the sandboxes that this data directory has in Docker or on disk, and a database does not know.
type findings struct {
	ids []string
	// logsOnly are those of which Docker has nothing.
	logsOnly int
	// since is when the oldest was made, zero where that does not show.
	since time.Time
}

func find(inventory runtime.Inventory, known func(id string) bool) findings {
	var f findings
	there := map[string]bool{}
	for id := range inventory.Objects {
		there[id] = true
	}
	for _, id := range inventory.Histories {
		there[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		if known(id) {
			continue
		}
		f.ids = append(f.ids, id)
		if _, objects := inventory.Objects[id]; !objects {
			f.logsOnly++
		}
		if at := inventory.Since[id]; !at.IsZero() && (f.since.IsZero() || at.Before(f.since)) {
			f.since = at
		}
	}
	return f
}

// namedFindings are as many ids as a message holds.
const namedFindings = 10

func (f findings) String() string {
	switch len(f.ids) {
	case 0:
		return "no sandbox that the database does not know"
	case 1:
		return "1 sandbox that the database does not know" + f.details()
	}
	return fmt.Sprintf("%d sandboxes that the database does not know", len(f.ids)) + f.details()
}

func (f findings) details() string {
	text := ""
	if f.logsOnly > 0 {
		text += fmt.Sprintf(", of %d only logs", f.logsOnly)
	}
	if !f.since.IsZero() {
		text += ", the oldest since " + f.since.Format(time.DateTime)
	}
	text += ": " + strings.Join(f.ids[:min(len(f.ids), namedFindings)], ", ")
	if more := len(f.ids) - namedFindings; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// lookFor compares the runtime with what a database knows.
func lookFor(ctx context.Context, runtime *dockerrt.Docker, known func(ids []string) (map[string]bool, error)) (findings, error) {
	inventory, err := runtime.Inventory(ctx)
	if err != nil {
		return findings{}, err
	}
	all := find(inventory, func(string) bool { return false })
	knows, err := known(all.ids)
	return find(inventory, func(id string) bool { return knows[id] }), err
}

func knownTo(db *persist.DB) func(ids []string) (map[string]bool, error) {
	return func(ids []string) (map[string]bool, error) {
		origins, err := db.Origins(ids)
		known := map[string]bool{}
		for id, origin := range origins {
			known[id] = origin != persist.Unknown
		}
		return known, err
	}
}

// settle returns nil when somebody has said that the daemon is to go on with a database that is not the one that was here.
// Otherwise it says what there is that this puts at risk, and what can be done. It changes nothing.
func (a *arguments) settle(ctx context.Context, mismatch *persist.Mismatch, open func() (*dockerrt.Docker, error), stdin io.Reader, stderr io.Writer) error {
	if a.adopt {
		return nil
	}
	known := func([]string) (map[string]bool, error) { return mismatch.Known, nil }
	runtime, err := open()
	if err != nil {
		return explained(mismatch, fmt.Sprintf("What there is in Docker cannot be told: %v", err), "N")
	}
	defer runtime.Close()
	if a.forget {
		return a.confirm(ctx, runtime, known, stdin, stderr)
	}
	f, err := lookFor(ctx, runtime, known)
	switch {
	case err != nil:
		return explained(mismatch, fmt.Sprintf("What there is in Docker cannot be told: %v", err), "N")
	case len(f.ids) == 1:
		return explained(mismatch, "There is "+f.String(), "1")
	}
	return explained(mismatch, "There are "+f.String(), strconv.Itoa(len(f.ids)))
}

func explained(mismatch *persist.Mismatch, found, count string) error {
	saved := ""
	if _, err := os.Stat(mismatch.Path + ".rescued"); err == nil {
		saved = fmt.Sprintf("\n      (%s.rescued is what agboxd saved when the file was replaced while it ran)", mismatch.Path)
	}
	return fmt.Errorf(`%w
%s.
Nothing was changed. Choose:
  put the right file at %s and start agboxd again%s
  agboxd --adopt      go on with the file as it is, and take these sandboxes in as they are
  agboxd --forget=%s   go on with the file as it is, and remove these sandboxes and their logs for good
docs/backup.md has more`, mismatch, found, mismatch.Path, saved, count)
}

var errNotConfirmed = errors.New("nothing was removed")

// confirm returns nil when the number of sandboxes that are to be removed was said, or is typed by somebody who was told.
func (a *arguments) confirm(ctx context.Context, runtime *dockerrt.Docker, known func([]string) (map[string]bool, error), stdin io.Reader, stderr io.Writer) error {
	f, err := lookFor(ctx, runtime, known)
	if err != nil {
		return err
	}
	if a.count < 0 {
		fmt.Fprintf(stderr, "agboxd has found %s\nType how many to remove with their logs for good: ", f)
		answer, err := bufio.NewReader(stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if a.count, err = strconv.Atoi(strings.TrimSpace(answer)); err != nil {
			return fmt.Errorf("%w: %q is no number", errNotConfirmed, strings.TrimSpace(answer))
		}
	}
	if a.count != len(f.ids) {
		return fmt.Errorf("%w: the number is not %d: agboxd has found %s", errNotConfirmed, a.count, f)
	}
	return nil
}
