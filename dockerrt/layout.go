package dockerrt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// layout is where the daemon's files are.
type layout struct{ root string }

func (l layout) logs(sandboxID string) string { return filepath.Join(l.root, "exec-logs", sandboxID) }
func (l layout) results(sandboxID string) string {
	return filepath.Join(l.root, "exec-results", sandboxID)
}

// snapshots holds the specs of snapshots.
func (l layout) snapshots() string { return filepath.Join(l.root, "snapshots") }

// oplogs is outside of all that is mounted.
func (l layout) oplogs() string { return filepath.Join(l.root, "operation-logs") }

func (l layout) run(sandboxID string) string    { return filepath.Join(l.root, "run", sandboxID) }
func (l layout) socket(sandboxID string) string { return filepath.Join(l.run(sandboxID), "s") }

func (l layout) log(sandboxID, execID, stream string) string {
	return filepath.Join(l.logs(sandboxID), execID+"."+stream+".log")
}

// index is the index of the exec's output.
func (l layout) index(sandboxID, execID string) string {
	return filepath.Join(l.logs(sandboxID), execID+".index")
}

func (l layout) result(sandboxID, execID string) string {
	return filepath.Join(l.results(sandboxID), execID)
}

// stdin is the FIFO of a command that has input.
func (l layout) stdin(sandboxID, execID string) string { return l.result(sandboxID, execID) + ".stdin" }

// recorded tells whether the file for the exec's result was made.
func (l layout) recorded(sandboxID, execID string) bool {
	_, err := os.Lstat(l.result(sandboxID, execID))
	return err == nil
}

// life holds the name of the life in which the sandbox's own command may have been started, the last one.
func (l layout) life(sandboxID string) string { return filepath.Join(l.results(sandboxID), "_life") }

// begin notes that the sandbox's own command is about to be started; begun tells whether that was noted in this life.
func (l layout) begin(sandboxID, life string) error {
	return os.WriteFile(l.life(sandboxID), []byte(life), 0o600)
}

func (l layout) begun(sandboxID, life string) (bool, error) {
	last, err := os.ReadFile(l.life(sandboxID))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(last) == life, err
}

// make creates the sandbox's directories. Their parents are closed to others; logs and the socket are open to
// whatever user the sandbox's processes have.
func (l layout) make(sandboxID string) error {
	for dir, mode := range map[string]os.FileMode{
		l.logs(sandboxID): 0o755, l.run(sandboxID): 0o755, l.results(sandboxID): 0o700,
	} {
		if err := makeParent(filepath.Dir(dir)); err != nil {
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

// makeParent makes a directory that holds one for each sandbox.
func makeParent(dir string) error {
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

// openOutput opens a log for writing by agbox-init, creating it when it is not there. What is in it stays: the
// same exec may be opened again after a restart. Logs can be read from inside the sandbox.
func openOutput(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
}

// recordRoom is more than any result takes.
const recordRoom = 4096

// openRecord opens the file for an exec's result, and sees to it that the result will find room on the disk: a command
// is not started whose exit code could be lost. What is in the file stays.
func (l layout) openRecord(sandboxID, execID string) (*os.File, error) {
	record, err := os.OpenFile(l.result(sandboxID, execID), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Fallocate(int(record.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, recordRoom)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errors.Join(fmt.Errorf("no room for the result %s: %w", record.Name(), err), record.Close())
	}
	return record, nil
}

// removeRun removes what a removed sandbox needs no more; its logs and results are history.
func (l layout) removeRun(sandboxID string) error { return os.RemoveAll(l.run(sandboxID)) }

// removeExec removes what one exec left, which has ended.
func (l layout) removeExec(sandboxID, execID string) error {
	var errs []error
	for _, path := range []string{l.log(sandboxID, execID, "stdout"), l.log(sandboxID, execID, "stderr"), l.index(sandboxID, execID),
		l.stdin(sandboxID, execID), l.result(sandboxID, execID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// since is when the sandbox's logs were begun, zero where there are none.
func (l layout) since(sandboxID string) time.Time {
	info, err := os.Stat(l.results(sandboxID))
	if err != nil {
		info, err = os.Stat(l.logs(sandboxID))
	}
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (l layout) removeHistory(sandboxID string) error {
	return errors.Join(os.RemoveAll(l.logs(sandboxID)), os.RemoveAll(l.results(sandboxID)))
}
