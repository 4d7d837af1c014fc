package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/agbox-dev/agbox/sdk/raw"
)

// paths are fixed by the contract; only the XDG variables and HOME move them.
type paths struct {
	socket, lock, config, data, database, witness string
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
		witness:  filepath.Join(data, "instance"),
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
