package e2b

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// logTail is how much of a sandbox's operation log a call looks at: all that the daemon keeps.
const logTail = 1 << 20

type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// operations reads what the daemon did for the sandbox, oldest first: what E2B calls its logs.
func (c *call) operations() ([]logEntry, error) {
	b, err := c.box()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	tail := uint64(logTail)
	if err := c.client.CopySandboxLog(c.Context(), b.ID, sdk.SandboxLog{TailBytes: &tail}, &text, &text); err != nil {
		return nil, err
	}
	entries := []logEntry{}
	for line := range strings.Lines(text.String()) {
		at, message, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		moment, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			continue // the tail began within a line
		}
		operation, _, _ := strings.Cut(message, ":")
		entries = append(entries, logEntry{moment, "info", message, map[string]string{"operation": operation}})
	}
	return entries, nil
}

// logs is the older form: from a time in milliseconds on.
func logs(c *call) (int, any, error) {
	start, err := c.number("start", 0, 0, farAway<<10)
	if err != nil {
		return 0, nil, err
	}
	limit, err := c.number("limit", 1000, 0, 1000)
	if err != nil {
		return 0, nil, err
	}
	entries, err := c.operations()
	if err != nil {
		return 0, nil, err
	}
	type line struct {
		Timestamp time.Time `json:"timestamp"`
		Line      string    `json:"line"`
	}
	entries = slices.DeleteFunc(entries, func(e logEntry) bool { return e.Timestamp.UnixMilli() < start })
	entries = entries[:min(int64(len(entries)), limit)]
	lines := []line{}
	for _, e := range entries {
		lines = append(lines, line{e.Timestamp, e.Message})
	}
	return http.StatusOK, map[string]any{"logs": lines, "logEntries": entries}, nil
}

func logsV2(c *call) (int, any, error) {
	q := c.URL.Query()
	direction := cmp.Or(q.Get("direction"), "forward")
	levels := []string{"debug", "info", "warn", "error"}
	level := slices.Index(levels, cmp.Or(q.Get("level"), "debug"))
	switch {
	case direction != "forward" && direction != "backward":
		return 0, nil, refused(http.StatusBadRequest, "direction is %q: give forward or backward", direction)
	case level < 0:
		return 0, nil, refused(http.StatusBadRequest, "level is %q: give debug, info, warn or error", q.Get("level"))
	}
	limit, err := c.number("limit", 1000, 1, 1000)
	if err != nil {
		return 0, nil, err
	}
	cursor, err := c.number("cursor", -1, 0, farAway<<10)
	if err != nil {
		return 0, nil, err
	}
	entries, err := c.operations()
	if err != nil {
		return 0, nil, err
	}
	if direction == "backward" {
		slices.Reverse(entries)
	}
	entries = slices.DeleteFunc(entries, func(e logEntry) bool {
		at := e.Timestamp.UnixMilli()
		return cursor >= 0 && (direction == "forward" && at < cursor || direction == "backward" && at > cursor) ||
			slices.Index(levels, e.Level) < level || !strings.Contains(e.Message, q.Get("search"))
	})
	return http.StatusOK, map[string]any{"logs": entries[:min(int64(len(entries)), limit)]}, nil
}
