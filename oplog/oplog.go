// Package oplog keeps operation logs: what was done for one sandbox and what happened to it, a line for each fact. They lie in
// a directory that no sandbox sees, since the daemon's work waits for it, and are kept up to the sandbox's Remove.
package oplog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/keyed"
	"github.com/agbox-dev/agbox/text"
)

const (
	newerName = "log"
	olderName = "older"
	// half is the size in bytes at which a file becomes the older one, in place of that before.
	half = 512 << 10
	// maxLine bounds a line in bytes.
	maxLine = 4 << 10
	// timeFormat is RFC 3339 with milliseconds.
	timeFormat = "2006-01-02T15:04:05.000Z07:00"
)

// Logs are the operation logs of all sandboxes. What goes wrong with them is nobody's failure: the daemon's own log has it.
type Logs struct {
	root string
	log  *slog.Logger

	writers keyed.Mutex[string] // by sandbox
}

// New returns the logs in the directory root, which holds nothing else and is made when it is needed.
func New(root string, log *slog.Logger) *Logs {
	return &Logs{root: root, log: log}
}

// Paths returns the host paths of the sandbox's log: the older half, which is there only in a long life, and the newer one,
// which is replaced by another file when it becomes the older. Both only ever grow.
func (l *Logs) Paths(sandboxID string) (older, newer string) {
	dir := filepath.Join(l.root, sandboxID)
	return filepath.Join(dir, olderName), filepath.Join(dir, newerName)
}

// Root holds a directory for each sandbox.
func (l *Logs) Root() string { return l.root }

// Open makes the directory of a sandbox's log. Nothing else does: a line that comes late finds none.
func (l *Logs) Open(sandboxID string) {
	err := os.MkdirAll(l.root, 0o700)
	if err == nil {
		err = os.Mkdir(filepath.Join(l.root, sandboxID), 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		l.log.Warn("a sandbox has no operation log", slog.String("sandbox_id", sandboxID), slog.Any("error", err))
	}
}

// Remove removes the sandbox's log.
func (l *Logs) Remove(sandboxID string) error { return os.RemoveAll(filepath.Join(l.root, sandboxID)) }

// Entry is a line on its way into a sandbox's log.
type Entry struct{ sandboxID, line string }

// NewEntry makes a line of now.
func NewEntry(sandboxID, operation, words string) Entry {
	return Entry{sandboxID, oneLine(time.Now().UTC().Format(timeFormat) + " " + operation + ": " + words)}
}

// With is the entry with more words at its end.
func (e Entry) With(words string) Entry {
	return Entry{e.sandboxID, oneLine(e.line + words)}
}

// Note adds a line of now to a sandbox's log. It works on the disk.
func (l *Logs) Note(sandboxID, operation, words string) {
	l.Append(NewEntry(sandboxID, operation, words))
}

// Append adds a line to its log. It works on the disk.
func (l *Logs) Append(e Entry) {
	older, newer := l.Paths(e.sandboxID)
	unlock, err := l.writers.Lock(context.Background(), e.sandboxID)
	if err == nil {
		err = appendLine(older, newer, e.line)
		unlock()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Warn("a line is missing in a sandbox's operation log", slog.String("sandbox_id", e.sandboxID),
			slog.String("line", e.line), slog.Any("error", err))
	}
}

// oneLine makes words a line that a terminal may show.
func oneLine(words string) string {
	line := text.Line(strings.TrimSpace(words))
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "…"
	}
	return line + "\n"
}

// appendLine writes all of the line or nothing. The directory must be there, and nobody else write meanwhile.
func appendLine(older, newer, line string) error {
	info, err := os.Lstat(newer)
	if err == nil && info.Size()+int64(len(line)) > half {
		if dropped, err := os.Lstat(older); err == nil {
			line = oneLine(fmt.Sprintf("%s log: the oldest %d bytes were dropped", time.Now().UTC().Format(timeFormat), dropped.Size())) + line
		}
		if err := os.Rename(newer, older); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(newer, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err = file.Stat()
	if err == nil {
		if _, err = file.WriteString(line); err != nil {
			err = errors.Join(err, file.Truncate(info.Size()))
		}
	}
	return errors.Join(err, file.Close())
}
