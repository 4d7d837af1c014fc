// Package layout is where the daemon keeps the files of its sandboxes, on the host and inside of them. It knows no engine.
package layout

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Layout is one data directory.
type Layout struct{ Root string }

// Logs holds the output of the sandbox's commands, Results how they ended.
func (l Layout) Logs(sandboxID string) string { return filepath.Join(l.Root, "exec-logs", sandboxID) }
func (l Layout) Results(sandboxID string) string {
	return filepath.Join(l.Root, "exec-results", sandboxID)
}

// Snapshots holds the specs of snapshots.
func (l Layout) Snapshots() string { return filepath.Join(l.Root, "snapshots") }

// Networks holds whose the networks are that have no sandbox's name.
func (l Layout) Networks() string { return filepath.Join(l.Root, "networks") }

// Oplogs is outside of all that is mounted.
func (l Layout) Oplogs() string { return filepath.Join(l.Root, "operation-logs") }

// Run holds the socket that agbox-init connects to, and the mark of a sandbox that is relayed.
func (l Layout) Run(sandboxID string) string    { return filepath.Join(l.Root, "run", sandboxID) }
func (l Layout) Socket(sandboxID string) string { return filepath.Join(l.Run(sandboxID), "s") }

// Log is the file of one stream of the exec's output.
func (l Layout) Log(sandboxID, execID, stream string) string {
	return filepath.Join(l.Logs(sandboxID), execID+"."+stream+".log")
}

// Index is the index of the exec's output.
func (l Layout) Index(sandboxID, execID string) string {
	return filepath.Join(l.Logs(sandboxID), execID+".index")
}

// Result is the file that agbox-init writes the exec's end to.
func (l Layout) Result(sandboxID, execID string) string {
	return filepath.Join(l.Results(sandboxID), execID)
}

// Stdin is the FIFO of a command that has input.
func (l Layout) Stdin(sandboxID, execID string) string { return l.Result(sandboxID, execID) + ".stdin" }

// Recorded tells whether the file for the exec's result was made.
func (l Layout) Recorded(sandboxID, execID string) bool {
	_, err := os.Lstat(l.Result(sandboxID, execID))
	return err == nil
}

// life holds the name of the life in which the sandbox's own command may have been started, the last one.
func (l Layout) life(sandboxID string) string { return filepath.Join(l.Results(sandboxID), "_life") }

// Begin notes that the sandbox's own command is about to be started; Begun tells whether that was noted in this life.
func (l Layout) Begin(sandboxID, life string) error {
	return os.WriteFile(l.life(sandboxID), []byte(life), 0o600)
}

func (l Layout) Begun(sandboxID, life string) (bool, error) {
	last, err := os.ReadFile(l.life(sandboxID))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(last) == life, err
}

// Make creates the sandbox's directories. Their parents are closed to others; logs and the socket are open to
// whatever user the sandbox's processes have.
func (l Layout) Make(sandboxID string) error {
	for dir, mode := range map[string]os.FileMode{
		l.Logs(sandboxID): 0o755, l.Run(sandboxID): 0o755, l.Results(sandboxID): 0o700,
	} {
		if err := MakeParent(filepath.Dir(dir)); err != nil {
			return err
		}
		if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.Chmod(dir, mode); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}

// MakeParent makes a directory that holds one for each sandbox.
func MakeParent(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return spread(dir)
}

// spread asks ext4 to place what is made in dir all over the disk, as it does in /home. Otherwise everything shares
// the block group of dir, and where that one saw many deletions, as that of /tmp does, making a file takes up to
// 0.9 ms instead of 0.02, which is more than starting a command. Other file systems have no such flag, and no need.
func spread(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return nil
	}
	_ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topDirFlag))
	return nil
}

// topDirFlag is the kernel's FS_TOPDIR_FL, which x/sys does not name.
const topDirFlag = 0x00020000

// RemoveRun removes what a removed sandbox needs no more; its logs and results are history.
func (l Layout) RemoveRun(sandboxID string) error { return os.RemoveAll(l.Run(sandboxID)) }

// RemoveExec removes what one exec left, which has ended.
func (l Layout) RemoveExec(sandboxID, execID string) error {
	var errs []error
	for _, path := range []string{l.Log(sandboxID, execID, "stdout"), l.Log(sandboxID, execID, "stderr"), l.Index(sandboxID, execID),
		l.Stdin(sandboxID, execID), l.Result(sandboxID, execID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Since is when the sandbox's logs were begun, zero where there are none.
func (l Layout) Since(sandboxID string) time.Time {
	info, err := os.Stat(l.Results(sandboxID))
	if err != nil {
		info, err = os.Stat(l.Logs(sandboxID))
	}
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// RemoveHistory removes logs and results.
func (l Layout) RemoveHistory(sandboxID string) error {
	return errors.Join(os.RemoveAll(l.Logs(sandboxID)), os.RemoveAll(l.Results(sandboxID)))
}

// Histories lists the sandboxes that have logs or results.
func (l Layout) Histories() ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for _, parent := range []string{l.Logs(""), l.Results(""), l.Oplogs()} {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("dockerrt: cannot list logs: %w", err)
		}
		for _, entry := range entries {
			if !seen[entry.Name()] {
				seen[entry.Name()] = true
				ids = append(ids, entry.Name())
			}
		}
	}
	return ids, nil
}

// ExecIDs lists the execs of which there are logs or results.
func (l Layout) ExecIDs(sandboxID string) ([]string, error) {
	ids := map[string]bool{}
	for _, dir := range []string{l.Results(sandboxID), l.Logs(sandboxID)} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("dockerrt: cannot list execs: %w", err)
		}
		for _, entry := range entries {
			id, _, _ := strings.Cut(entry.Name(), ".")
			if id != "" && !strings.HasPrefix(id, "_") { // which the daemon's own begin with
				ids[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids)), nil
}
