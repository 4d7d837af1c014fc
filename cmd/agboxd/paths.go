package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/sdk/raw"
)

// paths are fixed by the contract; only the XDG variables and HOME move them.
type paths struct {
	socket, lock, config, data, database string
}

func findPaths() (paths, error) {
	socket, err := raw.SocketPath()
	if err != nil {
		return paths{}, err
	}
	configDir, err := xdg("XDG_CONFIG_HOME", ".config")
	if err != nil {
		return paths{}, err
	}
	dataDir, err := xdg("XDG_DATA_HOME", ".local/share")
	if err != nil {
		return paths{}, err
	}
	data := filepath.Join(dataDir, "agents-sandbox")
	return paths{
		socket:   socket,
		lock:     filepath.Join(filepath.Dir(socket), "agboxd.lock"),
		config:   filepath.Join(configDir, "agents-sandbox", "config.toml"),
		data:     data,
		database: filepath.Join(data, "ids.db"),
	}, nil
}

// xdg returns the directory that the variable names; as the XDG specification has it, a relative one counts as
// not set.
func xdg(variable, fallback string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("set HOME or %s: %w", variable, err)
	}
	return filepath.Join(home, fallback), nil
}

// instance returns the data directory's own id, made at first use. What it owns in Docker carries it.
func (p paths) instance() (string, error) {
	path := filepath.Join(p.data, "instance")
	text, err := os.ReadFile(path)
	if err == nil {
		id, err := uuid.Parse(strings.TrimSpace(string(text)))
		if err != nil {
			return "", fmt.Errorf("%s does not hold an instance id: restore it, or delete the sandboxes by hand and remove it: %w", path, err)
		}
		return id.String(), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	id := uuid.NewString()
	return id, placeFile(path, []byte(id+"\n"), 0o600)
}

// placeFile writes a file so that it is there whole or not at all.
func placeFile(path string, content []byte, mode os.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
