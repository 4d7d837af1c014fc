package checker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// judgeFiles compares the files of an ended exec with what it wrote, and with how the log says that it ended.
func (c *Checker) judgeFiles(s *sandbox, id string, exec *exec, end *agboxv1.SandboxEvent) {
	for stream, want := range map[string]Lines{"stdout": exec.want.Stdout, "stderr": exec.want.Stderr} {
		path := filepath.Join(c.DataDir, "exec-logs", s.id, id+"."+stream+".log")
		got, err := os.ReadFile(path)
		finished := end.EventType == agboxv1.EventType_EXEC_FINISHED
		switch text := want.String(); {
		case errors.Is(err, os.ErrNotExist) && !finished:
		case err != nil:
			c.report.add(WrongOutput, id, "%v", err)
		case finished && string(got) != text:
			c.report.add(WrongOutput, id, "%s holds %d bytes, written were %d", path, len(got), len(text))
		case !strings.HasPrefix(text, string(got)):
			c.report.add(WrongOutput, id, "%s holds %d bytes that were not written so", path, len(got))
		}
	}
	if end.EventType != agboxv1.EventType_EXEC_FAILED {
		return
	}
	record, err := os.ReadFile(filepath.Join(c.DataDir, "exec-results", s.id, id))
	if err != nil {
		return
	}
	if result, whole := protocol.ParseRecord(record); whole && result.ErrorCode == "" {
		c.report.add(LostExitCode, id, "the log says %s, its result on disk exit code %d", end.GetExec().GetErrorCode(), result.ExitCode)
	}
}

// judgeDirectories finds what belongs to sandboxes that are gone. Logs and results of a DELETED one are its history.
func (c *Checker) judgeDirectories(known map[string]agboxv1.SandboxState) error {
	for _, folder := range []struct {
		name    string
		history bool
	}{{"run", false}, {"layers", false}, {"exec-logs", true}, {"exec-results", true}, {"operation-logs", true}} {
		entries, err := os.ReadDir(filepath.Join(c.DataDir, folder.name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		for _, entry := range entries {
			id, vacant := c.tenant(entry.Name())
			if vacant {
				continue
			}
			state, there := known[id]
			if there && (folder.history || state != deleted) {
				continue
			}
			path := filepath.Join(c.DataDir, folder.name, entry.Name())
			c.report.add(LeakedDirectory, path, "its sandbox is %s", label(state, there))
			if _, err := os.Stat(filepath.Join(path, "s")); err == nil {
				c.report.add(LeakedSocket, path, "its sandbox is %s", label(state, there))
			}
		}
	}
	return nil
}

func label(state agboxv1.SandboxState, there bool) string {
	if !there {
		return "not known"
	}
	return state.String()
}
