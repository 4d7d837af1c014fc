package layout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// Relayed tells whether the sandbox was made for the engine to carry what is said in it.
func (l Layout) Relayed(sandboxID string) bool {
	_, err := os.Lstat(l.relayMark(sandboxID))
	return err == nil
}

func (l Layout) relayMark(sandboxID string) string { return filepath.Join(l.Run(sandboxID), "engine") }

// MarkRelayed notes that of a sandbox that is about to be made, or that it is not so.
func (l Layout) MarkRelayed(sandboxID string, relayed bool) error {
	mark := l.relayMark(sandboxID)
	if !relayed {
		if err := os.Remove(mark); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := l.Make(sandboxID); err != nil {
		return err
	}
	return os.WriteFile(mark, nil, 0o600)
}

// Gathered is the file of this host that is of the same kind as one in the sandbox, "" for none.
func (l Layout) Gathered(sandboxID, execID, kind string) string {
	switch kind {
	case protocol.KindStdout, protocol.KindStderr:
		return l.Log(sandboxID, execID, kind)
	case protocol.KindIndex:
		return l.Index(sandboxID, execID)
	case protocol.KindRecord:
		return l.Result(sandboxID, execID)
	}
	return ""
}
