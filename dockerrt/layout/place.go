package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// What a container mounts keeps the paths that it was made with. So what a sandbox takes over of a place is renamed, and found under the
// place's name by a symbolic link, whose target is the sandbox's id.

// Occupy makes the directories of the place the sandbox's, as far as they are not.
func (l Layout) Occupy(sandboxID, place string) error {
	for _, of := range []func(string) string{l.Run, l.Logs} {
		from, to := of(place), of(sandboxID)
		info, err := os.Lstat(from)
		if err == nil && info.IsDir() {
			if err = os.Rename(from, to); err == nil {
				err = os.Symlink(sandboxID, from)
			}
		} else if errors.Is(err, fs.ErrNotExist) { // it ended between the two
			if _, err = os.Lstat(to); err == nil {
				err = os.Symlink(sandboxID, from)
			}
		}
		if err != nil {
			return fmt.Errorf("dockerrt: the files of what was made ahead cannot be taken over: %w", err)
		}
	}
	if err := os.RemoveAll(l.Results(place)); err != nil {
		return err
	}
	return l.Make(sandboxID)
}

// Leave removes what is left under the place's name.
func (l Layout) Leave(place string) error {
	return errors.Join(l.RemoveRun(place), l.RemoveHistory(place))
}

// Tenants are the sandboxes that have taken a place, by place, as far as that shows.
func (l Layout) Tenants() (map[string]string, error) {
	tenants := map[string]string{}
	places, err := l.Places()
	for _, place := range places {
		if sandboxID, err := os.Readlink(l.Logs(place)); err == nil {
			tenants[place] = sandboxID
		}
	}
	return tenants, err
}

// Places are those of which there are any files.
func (l Layout) Places() ([]string, error) {
	var places []string
	for _, parent := range []string{l.Logs(""), l.Run("")} {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("dockerrt: cannot list places: %w", err)
		}
		for _, entry := range entries {
			if runtime.IsPlace(entry.Name()) {
				places = append(places, entry.Name())
			}
		}
	}
	return places, nil
}

// What can be noted with Mark: it was booted as what it is, and its container has the usual name.
const (
	Booted = "booted"
	Named  = "named"
)

// stage is a file that tells that something was done for a sandbox that took a place.
func (l Layout) stage(sandboxID, name string) string {
	return filepath.Join(l.Results(sandboxID), "_"+name)
}

// Mark notes that something was done for a sandbox, Marked tells whether that was noted.
func (l Layout) Mark(sandboxID, name string) error {
	return os.WriteFile(l.stage(sandboxID, name), nil, 0o600)
}

func (l Layout) Marked(sandboxID, name string) bool {
	_, err := os.Lstat(l.stage(sandboxID, name))
	return err == nil
}

// SpecFile holds what a sandbox is that took a place: its container does not tell.
func (l Layout) SpecFile(sandboxID string) string { return l.stage(sandboxID, "spec") }
