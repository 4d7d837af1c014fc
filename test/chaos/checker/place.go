package checker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"go.etcd.io/bbolt"
)

// placePrefix is what the name of a sandbox that was made ahead begins with.
const placePrefix = "warm."

// tenant is the sandbox that what bears the name belongs to; vacant says that it was made ahead and nobody's yet.
func (c *Checker) tenant(name string) (id string, vacant bool) {
	if !strings.HasPrefix(name, placePrefix) {
		return name, false
	}
	id, err := os.Readlink(filepath.Join(c.DataDir, "exec-logs", name))
	if err != nil {
		return name, true
	}
	return id, false
}

// judgePlaces finds places that two sandboxes have taken, and those that only one side knows of.
func (c *Checker) judgePlaces(tx *bbolt.Tx) error {
	taken, places := tx.Bucket([]byte("sandbox-places")), tx.Bucket([]byte("places"))
	if taken == nil || places == nil {
		return nil
	}
	owner := map[string]string{}
	if err := taken.ForEach(func(id, place []byte) error {
		c.placed[string(id)] = string(place)
		if other, there := owner[string(place)]; there {
			c.report.add(SharedPlace, string(place), "%s and %s have taken it", other, id)
		}
		owner[string(place)] = string(id)
		return nil
	}); err != nil {
		return err
	}
	for id, place := range c.placed {
		if other := owner[place]; other != "" && other != id {
			c.report.add(SharedPlace, place, "%s took it, and %s before", other, id)
		}
	}
	return places.ForEach(func(place, id []byte) error {
		if owner[string(place)] != string(id) {
			c.report.add(SharedPlace, string(place), "it is kept as that of %s, and %q has it", id, owner[string(place)])
		}
		return nil
	})
}

// Warm counts the sandboxes that took what was made ahead, as far as a daemon that ended shows.
func (c *Checker) Warm() int { return len(c.placed) }

// Vacated checks that nothing that was made ahead is left. The daemon must have ended as a signal does.
func (c *Checker) Vacated(ctx context.Context) error {
	instance, err := c.instance()
	if err != nil {
		return err
	}
	mine := filters.NewArgs(filters.Arg("label", labelInstance+"="+instance))
	containers, err := c.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: mine})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	networks, err := c.Engine.NetworkList(ctx, network.ListOptions{Filters: mine})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	for _, found := range containers {
		if strings.HasPrefix(found.Labels[labelSandbox], placePrefix) {
			c.report.add(LeakedContainer, strings.Join(found.Names, " "), "it was made ahead, and the daemon has ended")
		}
	}
	for _, found := range networks {
		if strings.HasPrefix(found.Labels[labelSandbox], placePrefix) {
			c.report.add(LeakedNetwork, found.Name, "it was made ahead, and the daemon has ended")
		}
	}
	for _, folder := range []string{"run", "exec-logs", "exec-results", "layers"} {
		left, err := filepath.Glob(filepath.Join(c.DataDir, folder, placePrefix+"*"))
		if err != nil {
			return err
		}
		for _, path := range left {
			c.report.add(LeakedDirectory, path, "it was made ahead, and the daemon has ended")
		}
	}
	return nil
}
