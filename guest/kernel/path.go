package kernel

import (
	"os"
	"strconv"
	"strings"
)

// Join is a path from a directory on; one that is absolute is itself.
func Join(dir, path string) string {
	switch {
	case path == "":
		return dir
	case path[0] == '/':
		return path
	}
	return strings.TrimRight(dir, "/") + "/" + path
}

// MountPoints lists where something is mounted, as this process sees it.
func MountPoints() ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 {
			points = append(points, unescape(f[4]))
		}
	}
	return points, nil
}

// unescape undoes the octal escapes of mountinfo, such as \040 for a space.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b = append(b, byte(v))
				i += 3
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
