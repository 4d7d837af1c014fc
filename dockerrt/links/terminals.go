package links

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxTerminals are those of one sandbox. The host's, 4,096 by default with a quarter of them its own, are shared by all of its
// sandboxes, and whoever has taken the last leaves none to the others.
const maxTerminals = "128"

// errTerminals: a sandbox may take all the terminals that there are.
var errTerminals = errors.New("a sandbox's terminals are not bounded")

// boundTerminals lets the container whose first process this is have maxTerminals, which Docker has no option for. It needs
// CAP_SYS_ADMIN on the host, and nothing must have run inside but our own program. It may be called again.
func boundTerminals(pid int) error {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errTerminals, err)
	}
	defer unix.Close(root)
	// An image may have links there.
	pts, err := unix.Openat2(root, "dev/pts", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return fmt.Errorf("%w: /dev/pts: %w", errTerminals, err)
	}
	defer unix.Close(pts)
	var theirs, ours unix.Stat_t
	if err := unix.Fstat(pts, &theirs); err != nil {
		return fmt.Errorf("%w: /dev/pts: %w", errTerminals, err)
	}
	if unix.Stat("/dev/pts", &ours) == nil && theirs.Dev == ours.Dev {
		return fmt.Errorf("%w: its /dev/pts is the host's", errTerminals)
	}
	options, err := terminalOptions(pid)
	if err != nil {
		return err
	}
	fs, err := unix.Fspick(pts, "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("%w: %w", errTerminals, err)
	}
	defer unix.Close(fs)
	// What is not said again becomes the default.
	for _, option := range append(options, "max="+maxTerminals) {
		key, value, _ := strings.Cut(option, "=")
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return fmt.Errorf("%w: %s: %w", errTerminals, option, err)
		}
	}
	if err := unix.FsconfigReconfigure(fs); err != nil {
		return fmt.Errorf("%w: %w", errTerminals, err)
	}
	return nil
}

// terminalOptions are those that the container's /dev/pts was mounted with, without max.
func terminalOptions(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTerminals, err)
	}
	for line := range strings.Lines(string(text)) {
		mount, fs, _ := strings.Cut(strings.TrimSpace(line), " - ")
		if fields := strings.Fields(mount); len(fields) < 5 || fields[4] != "/dev/pts" {
			continue
		}
		fields := strings.Fields(fs)
		if len(fields) != 3 || fields[0] != "devpts" {
			continue
		}
		var options []string
		for option := range strings.SplitSeq(fields[2], ",") {
			if key, _, valued := strings.Cut(option, "="); valued && key != "max" {
				options = append(options, option)
			}
		}
		return options, nil
	}
	return nil, fmt.Errorf("%w: it has no /dev/pts of its own", errTerminals)
}
