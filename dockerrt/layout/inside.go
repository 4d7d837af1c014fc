package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agbox-dev/agbox/paths"
)

// Where things are inside a sandbox.
const (
	GuestHome  = paths.Home
	InitTarget = GuestHome + "/init"
	RunTarget  = GuestHome + "/run"
	LogTarget  = paths.Logs
	Workdir    = paths.Workspace
	// InitSocket is what agbox-init connects to, or what its relay listens at.
	InitSocket = RunTarget + "/s"
	// RelayState is where a sandbox keeps its results whose execs the engine carries. It and LogTarget are volumes there that go
	// with the container, so that a root that is read-only can stay so, and no snapshot has them.
	RelayState = GuestHome + "/state"
)

// guest is the directory that sandboxes have at GuestHome: agbox-init, and the place for the mount of the sandbox's own
// directory. It is mounted as a whole, since not even root can move a mount point away, as it could the directory around one.
// Those of earlier agboxds stay for the sandboxes that were made with them.
func (l Layout) guest(sum string) string { return filepath.Join(l.Root, "guest", sum) }

// PlaceGuest makes the directory for the program at initPath, and returns its path.
func (l Layout) PlaceGuest(initPath string) (string, error) {
	program, err := os.ReadFile(initPath)
	if err != nil {
		return "", fmt.Errorf("cannot read agbox-init: %w", err)
	}
	sum := sha256.Sum256(program)
	dir := l.guest(hex.EncodeToString(sum[:8]))
	target := filepath.Join(dir, filepath.Base(InitTarget))
	if there, err := os.ReadFile(target); err == nil && sha256.Sum256(there) == sum {
		return dir, nil
	}
	err = os.MkdirAll(filepath.Join(dir, filepath.Base(RunTarget)), 0o755)
	if err == nil {
		if err = os.Remove(target); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	temporary := target + ".new"
	if err == nil {
		err = os.WriteFile(temporary, program, 0o755)
	}
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chmod(temporary, 0o755), os.Rename(temporary, target)) // whatever the umask
	}
	if err != nil {
		return "", fmt.Errorf("cannot place agbox-init: %w", err)
	}
	return dir, nil
}
