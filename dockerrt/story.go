package dockerrt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// A story is what was done for one sandbox and what happened to it, a line for each fact. It lies beside the logs of
// the sandbox's commands, under a name that no exec's log can have, and is as long-lived: to the sandbox's Forget.
const (
	storyName      = "_story.log"
	olderStoryName = "_story.older.log"
	// storyHalf is the size at which a file of a story becomes the older one, in place of that before.
	storyHalf = 512 << 10
	// storyLine bounds a line in bytes.
	storyLine = 4 << 10
	// storyTime is RFC 3339 with milliseconds.
	storyTime = "2006-01-02T15:04:05.000Z07:00"
)

// Story returns the host paths of the sandbox's story: the older half, which is there only in a long life, and the newer
// one, which is replaced by another file when it becomes the older. Files of a story only ever grow.
func (d *Docker) Story(sandboxID string) (older, newer string) {
	dir := d.layout.logs(sandboxID)
	return filepath.Join(dir, olderStoryName), filepath.Join(dir, storyName)
}

// telling is how what is done under a context gets into a story.
type telling struct {
	docker               *Docker
	sandboxID, operation string
	secrets              *strings.Replacer
}

type tellingKey struct{}

// telling returns a context under which step and tell write the sandbox's story. What it was asked for is secret: variables
// and hooks of the spec, which errors and outputs may repeat.
func (d *Docker) telling(ctx context.Context, sandboxID, operation string, envs map[string]string, services ...*agboxv1.ServiceSpec) context.Context {
	return context.WithValue(ctx, tellingKey{}, &telling{d, sandboxID, operation, secrets(envs, services)})
}

// tellingOf is telling for all of a spec.
func (d *Docker) tellingOf(ctx context.Context, sandboxID, operation string, spec *agboxv1.CreateSpec) context.Context {
	return d.telling(ctx, sandboxID, operation, spec.GetEnvs(), slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices())...)
}

// shortestSecret is the length in bytes from which a variable's value is taken out of other people's texts. Shorter ones
// keep no secret, and are parts of many words.
const shortestSecret = 6

func secrets(envs map[string]string, services []*agboxv1.ServiceSpec) *strings.Replacer {
	var hidden []string
	hide := func(envs map[string]string) {
		for _, value := range envs {
			hidden = append(hidden, value)
		}
	}
	hide(envs)
	for _, service := range services {
		hide(service.GetEnvs())
		hidden = append(hidden, service.GetPostStartOnPrimary()...)
	}
	slices.SortFunc(hidden, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // the first that fits counts
	var pairs []string
	for _, text := range hidden {
		if len(text) >= shortestSecret {
			pairs = append(pairs, strconv.Quote(text), "***", text, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// openStory makes the directory of a sandbox's story. Nothing else does: a line that comes late finds none.
func (d *Docker) openStory(sandboxID string) {
	dir := d.layout.logs(sandboxID)
	err := makeParent(filepath.Dir(dir))
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		d.log.Warn("a sandbox has no story", slog.String("sandbox_id", sandboxID), slog.Any("error", err))
	}
}

// tell writes a line into the story that ctx tells, if it tells one. Texts of others among args go through told.
func tell(ctx context.Context, format string, args ...any) {
	if t, ok := ctx.Value(tellingKey{}).(*telling); ok {
		t.docker.tell(t.sandboxID, t.operation, fmt.Sprintf(format, args...))
	}
}

// told returns a text of the engine, or of a program in the sandbox, as it may stand in the story.
func told(ctx context.Context, text string) string {
	if t, ok := ctx.Value(tellingKey{}).(*telling); ok {
		text = t.secrets.Replace(text)
	}
	return text
}

// step is for the beginning of a step: defer step(ctx, "made", "network %s", name)(&err). At the end the story has a line
// with how long it took, and the error if it failed.
func step(ctx context.Context, done, format string, args ...any) func(*error) {
	began := time.Now()
	return func(err *error) { stepped(ctx, began, *err, done, format, args...) }
}

// stepped is step for one that has ended.
func stepped(ctx context.Context, began time.Time, err error, done, format string, args ...any) {
	what, took := fmt.Sprintf(format, args...), time.Since(began).Milliseconds()
	switch {
	case err == nil:
		tell(ctx, "%s %s in %d ms", what, done, took)
	case errors.Is(err, context.Canceled):
		tell(ctx, "%s not %s: given up after %d ms", what, done, took)
	default:
		tell(ctx, "%s not %s after %d ms: %s", what, done, took, told(ctx, err.Error()))
	}
}

// tell adds a line to a sandbox's story. What goes wrong with that is nobody's failure.
func (d *Docker) tell(sandboxID, operation, text string) {
	line := time.Now().UTC().Format(storyTime) + " " + operation + ": " + text
	older, newer := d.Story(sandboxID)
	err := appendStory(older, newer, oneLine(line))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("a line is missing in a sandbox's story", slog.String("sandbox_id", sandboxID),
			slog.String("line", text), slog.Any("error", err))
	}
}

// oneLine makes text a line that a terminal may show.
func oneLine(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(strings.TrimSpace(text), "?"), "\n", `\n`)
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > storyLine {
		text = strings.ToValidUTF8(text[:storyLine], "") + "…"
	}
	return text + "\n"
}

// appendStory writes all of the line or nothing. The directory must be there. The file is its own lock, which ends with
// the process, so that there is nothing to keep for each sandbox. The sandbox's own users may not read it.
func appendStory(older, newer, line string) error {
	for {
		file, err := os.OpenFile(newer, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		again, err := appendLocked(file, older, newer, &line)
		if err = errors.Join(err, file.Close()); err != nil || !again {
			return err
		}
	}
}

// appendLocked reports whether the line belongs into another file that is at newer by now.
func appendLocked(file *os.File, older, newer string, line *string) (again bool, err error) {
	if err := lock(file); err != nil {
		return false, err
	}
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	if current, err := os.Lstat(newer); err != nil || !os.SameFile(info, current) {
		return true, nil // it became the older one, or its sandbox was forgotten
	}
	if info.Size()+int64(len(*line)) > storyHalf {
		if dropped, err := os.Lstat(older); err == nil {
			*line = oneLine(fmt.Sprintf("%s story: the oldest %d bytes were dropped", time.Now().UTC().Format(storyTime), dropped.Size())) + *line
		}
		return true, os.Rename(newer, older)
	}
	if _, err = file.WriteString(*line); err != nil {
		err = errors.Join(err, file.Truncate(info.Size()))
	}
	return false, err
}

// lock waits for whoever writes a line.
func lock(file *os.File) error {
	for {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
