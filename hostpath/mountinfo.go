package hostpath

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agbox-dev/agbox/paths"
)

// Mount is one line of a process's table of mounts.
type Mount struct {
	ID string
	// Device and Root name what is mounted: a file system, and a path in it.
	Device, Root string
	// Point is where it is mounted.
	Point    string
	ReadOnly bool
}

// Mounts reads the table of mounts of a process, "self" for this one. The kernel lets everybody do so, unless /proc is
// mounted with hidepid.
func Mounts(process string) ([]Mount, error) {
	file, err := os.Open("/proc/" + process + "/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parseMounts(file)
}

func parseMounts(table io.Reader) ([]Mount, error) {
	var mounts []Mount
	lines := bufio.NewReader(table)
	for {
		line, err := lines.ReadString('\n')
		// 36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue
		if f := strings.Fields(line); len(f) > 5 {
			mounts = append(mounts, Mount{ID: f[0], Device: f[2], Root: unescaped(f[3]), Point: unescaped(f[4]),
				ReadOnly: slices.Contains(strings.Split(f[5], ","), "ro")})
		}
		if err == io.EOF {
			return mounts, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// unescaped undoes what the kernel does to blanks and backslashes: \040.
func unescaped(field string) string {
	var text strings.Builder
	for {
		before, after, found := strings.Cut(field, `\`)
		text.WriteString(before)
		if !found {
			return text.String()
		}
		code, err := strconv.ParseUint(after[:min(3, len(after))], 8, 8)
		if err != nil || len(after) < 3 {
			text.WriteByte('\\')
			field = after
			continue
		}
		text.WriteByte(byte(code))
		field = after[3:]
	}
}

// Below returns the mounts strictly below dir. A bind mount of dir takes them along.
func Below(mounts []Mount, dir string) []Mount {
	var below []Mount
	for _, m := range mounts {
		if m.Point != dir && paths.Within(m.Point, dir) {
			below = append(below, m)
		}
	}
	return below
}

// On returns the mount that the process sees at point: the last one there.
func On(mounts []Mount, point string) (Mount, bool) {
	for _, m := range slices.Backward(mounts) {
		if m.Point == point {
			return m, true
		}
	}
	return Mount{}, false
}

// Bound returns, as Device and Root of the Mount, what a bind mount of f shows, which is open on path. mounts is the table
// of this process.
func Bound(mounts []Mount, f *os.File, path string) (Mount, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return Mount{}, err
	}
	for line := range strings.Lines(string(info)) {
		id, found := strings.CutPrefix(line, "mnt_id:")
		if !found {
			continue
		}
		at := slices.IndexFunc(mounts, func(m Mount) bool { return m.ID == strings.TrimSpace(id) })
		if at < 0 || !paths.Within(path, mounts[at].Point) {
			break
		}
		m := mounts[at]
		return Mount{Device: m.Device, Root: filepath.Join(m.Root, strings.TrimPrefix(path, strings.TrimSuffix(m.Point, "/")))}, nil
	}
	return Mount{}, fmt.Errorf("hostpath: the mount that holds %q is not in the table of mounts", path)
}
