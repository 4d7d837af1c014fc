package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// claim is whose a network is that has no sandbox's name.
type claim struct {
	Sandbox string `json:"sandbox"`
	// Network is what the sandbox may reach, as its spec has it.
	Network *agboxv1.NetworkSpec `json:"network,omitempty"`
	// Process made the claim, as engine.Client.Process has it.
	Process string `json:"process"`
	// Returned: the sandbox has it no more, and nobody has seen to what is left of it there.
	Returned bool `json:"returned,omitempty"`
}

// claims are the files that hold them, each by its network's name. A claim is on disk before anything is on the network.
type claims struct {
	dir string

	mu sync.Mutex
	// held are by network, of are the networks of those who have one.
	held map[string]claim
	of   map[string]string
}

// openClaims reads what earlier processes have claimed. A file that cannot be read stands for one that nobody can use.
func openClaims(dir string) (*claims, error) {
	c := &claims{dir: dir, held: map[string]claim{}, of: map[string]string{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a directory for what networks are whose: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list what networks are whose: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if strings.HasSuffix(entry.Name(), unfinished) {
			_ = os.Remove(path) // what it would have said was never relied on
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read what network is whose: %w", err)
		}
		one := claim{}
		if json.Unmarshal(text, &one) != nil || one.Sandbox == "" {
			one = claim{Returned: true}
		}
		c.keep(entry.Name(), one)
	}
	return c, nil
}

// unfinished ends the name of a file that is being written.
const unfinished = ".new"

func (c *claims) keep(network string, one claim) {
	c.held[network] = one
	if !one.Returned {
		c.of[one.Sandbox] = network
	} else if c.of[one.Sandbox] == network {
		delete(c.of, one.Sandbox)
	}
}

// set has the network be claimed so, durably, before it returns without an error.
func (c *claims) set(network string, one claim) error {
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	path := filepath.Join(c.dir, network)
	if err := writeDurably(path, text); err != nil {
		return fmt.Errorf("cannot note whose network %s is: %w", network, err)
	}
	c.mu.Lock()
	c.keep(network, one)
	c.mu.Unlock()
	return c.sync()
}

func writeDurably(path string, text []byte) error {
	file, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+unfinished, path)
}

// sync has what was done to the names of files last.
func (c *claims) sync() error {
	dir, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// end forgets a claim: the network is gone, or as it was made.
func (c *claims) end(network string) error {
	if err := os.Remove(filepath.Join(c.dir, network)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot forget whose network %s was: %w", network, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.held[network]; c.of[one.Sandbox] == network {
		delete(c.of, one.Sandbox)
	}
	delete(c.held, network)
	return nil
}

// networkOf returns the network that the sandbox has.
func (c *claims) networkOf(sandboxID string) (network string, one claim, has bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	network, has = c.of[sandboxID]
	return network, c.held[network], has
}

// owner returns the claim of the sandbox that has the network.
func (c *claims) owner(network string) (one claim, owned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, held := c.held[network]
	return one, held && !one.Returned
}

// find returns the claim of the network, also one that was returned.
func (c *claims) find(network string) (one claim, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, held = c.held[network]
	return one, held
}

// all returns every claim by network.
func (c *claims) all() map[string]claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.held)
}
