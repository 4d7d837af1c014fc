package raw

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
)

// SocketPath returns the absolute path of the daemon's socket for the calling user. The daemon and
// every client use this one rule, and nothing overrides it but the XDG variables:
//
//   - macOS: ~/Library/Application Support/agbox/agboxd.sock
//   - else $XDG_RUNTIME_DIR/agbox/agboxd.sock
//   - where XDG_RUNTIME_DIR is unset: /run/user/<uid>/agbox/agboxd.sock if /run/user/<uid> is there
//   - else $XDG_STATE_HOME/agbox/agboxd.sock, by default ~/.local/state/agbox/agboxd.sock
//
// A variable that is empty or holds a relative path counts as unset, as the XDG specification asks.
// Nothing is created. It fails where there is no home directory to fall back to, and where the
// path is longer than a socket address can hold.
func SocketPath() (string, error) {
	return socketPath(runtime.GOOS, os.Getuid(), os.Getenv, isDir)
}

// otherSocketPaths are where a daemon of this user listens that was started with less, or before there was more: without
// XDG_RUNTIME_DIR, or before there was a /run/user/<uid>. An XDG_RUNTIME_DIR of one's own, which sets a daemon apart, has
// none.
func otherSocketPaths(goos string, uid int, getenv func(string) string, isDir func(string) bool) []string {
	usual := filepath.Join("/run/user", strconv.Itoa(uid))
	if dir := getenv("XDG_RUNTIME_DIR"); goos == "darwin" || filepath.IsAbs(dir) && filepath.Clean(dir) != usual {
		return nil
	}
	first, err := socketPath(goos, uid, getenv, isDir)
	if err != nil {
		return nil
	}
	var others []string
	for _, without := range []func(string) bool{isDir, func(string) bool { return false }} {
		path, err := socketPath(goos, uid, func(name string) string {
			if name == "XDG_RUNTIME_DIR" {
				return ""
			}
			return getenv(name)
		}, without)
		if err == nil && path != first && !slices.Contains(others, path) {
			others = append(others, path)
		}
	}
	return others
}

func socketPath(goos string, uid int, getenv func(string) string, isDir func(string) bool) (string, error) {
	dir, err := socketDir(goos, uid, getenv, isDir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agbox", "agboxd.sock")
	limit := 107 // sun_path without its closing NUL
	if goos == "darwin" {
		limit = 103
	}
	if len(path) > limit {
		return "", fmt.Errorf("%w: %q has %d bytes, a socket path holds %d: set XDG_RUNTIME_DIR to a shorter directory",
			ErrSocketPath, path, len(path), limit)
	}
	return path, nil
}

func socketDir(goos string, uid int, getenv func(string) string, isDir func(string) bool) (string, error) {
	home := getenv("HOME")
	if goos == "darwin" {
		if !filepath.IsAbs(home) {
			return "", fmt.Errorf("%w: HOME is not set to an absolute path", ErrSocketPath)
		}
		return filepath.Join(home, "Library", "Application Support"), nil
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if dir := filepath.Join("/run/user", strconv.Itoa(uid)); isDir(dir) {
		return dir, nil
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("%w: none of XDG_RUNTIME_DIR, XDG_STATE_HOME and HOME is set to an absolute path", ErrSocketPath)
	}
	return filepath.Join(home, ".local", "state"), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
