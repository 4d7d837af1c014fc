package dockerrt

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agbox-dev/agbox/text"
)

// An operation log tells what was done for one sandbox and what happened to it, a line for each fact. It lies in a directory
// that no sandbox sees, since the daemon's work waits for it, and is kept up to the sandbox's Forget.
const (
	oplogName      = "log"
	olderOplogName = "older"
	// oplogHalf is the size in bytes at which a file becomes the older one, in place of that before.
	oplogHalf = 512 << 10
	// oplogLine bounds a line in bytes.
	oplogLine = 4 << 10
	// oplogTime is RFC 3339 with milliseconds.
	oplogTime = "2006-01-02T15:04:05.000Z07:00"
)

// OperationLog returns the host paths of the sandbox's operation log: the older half, which is there only in a long life, and
// the newer one, which is replaced by another file when it becomes the older. Both only ever grow.
func (d *Docker) OperationLog(sandboxID string) (older, newer string) {
	dir := d.layout.oplog(sandboxID)
	return filepath.Join(dir, olderOplogName), filepath.Join(dir, oplogName)
}

// openOperationLog makes the directory of a sandbox's operation log. Nothing else does: a line that comes late finds none.
func (d *Docker) openOperationLog(sandboxID string) {
	dir := d.layout.oplog(sandboxID)
	err := makeParent(filepath.Dir(dir))
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		d.log.Warn("a sandbox has no operation log", slog.String("sandbox_id", sandboxID), slog.Any("error", err))
	}
}

// entry is a line on its way into a sandbox's operation log.
type entry struct {
	sandboxID, line string
	// primary: it is of the end of the sandbox's primary container.
	primary bool
}

func newEntry(sandboxID, operation, words string) entry {
	return entry{sandboxID: sandboxID, line: oneLine(time.Now().UTC().Format(oplogTime) + " " + operation + ": " + words)}
}

// note adds a line to a sandbox's operation log. It works on the disk. What goes wrong with that is nobody's failure.
func (d *Docker) note(sandboxID, operation, words string) {
	d.appendEntry(newEntry(sandboxID, operation, words))
}

func (d *Docker) appendEntry(e entry) {
	older, newer := d.OperationLog(e.sandboxID)
	unlock := d.oplogs.lock(e.sandboxID)
	err := appendLine(older, newer, e.line)
	unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("a line is missing in a sandbox's operation log", slog.String("sandbox_id", e.sandboxID),
			slog.String("line", e.line), slog.Any("error", err))
	}
}

// oplogs has whoever adds lines to the same operation log take turns. The zero value is ready.
type oplogs struct {
	mu sync.Mutex
	in map[string]*turn // by sandbox
}

type turn struct {
	sync.Mutex
	users int // guarded by oplogs.mu
}

func (o *oplogs) lock(sandboxID string) (unlock func()) {
	o.mu.Lock()
	if o.in == nil {
		o.in = map[string]*turn{}
	}
	t := o.in[sandboxID]
	if t == nil {
		t = &turn{}
		o.in[sandboxID] = t
	}
	t.users++
	o.mu.Unlock()
	t.Lock()
	return func() {
		t.Unlock()
		o.mu.Lock()
		defer o.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(o.in, sandboxID)
		}
	}
}

// oneLine makes words a line that a terminal may show.
func oneLine(words string) string {
	line := text.Line(strings.TrimSpace(words))
	if len(line) > oplogLine {
		line = strings.ToValidUTF8(line[:oplogLine], "") + "…"
	}
	return line + "\n"
}

// appendLine writes all of the line or nothing. The directory must be there, and nobody else write meanwhile.
func appendLine(older, newer, line string) error {
	info, err := os.Lstat(newer)
	if err == nil && info.Size()+int64(len(line)) > oplogHalf {
		if dropped, err := os.Lstat(older); err == nil {
			line = oneLine(fmt.Sprintf("%s story: the oldest %d bytes were dropped", time.Now().UTC().Format(oplogTime), dropped.Size())) + line
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
