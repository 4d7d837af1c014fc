package engine

import "github.com/agbox-dev/agbox/actors/runtime"

// A sandbox that was made ahead has objects with the id of its place where others have their own: labels cannot be changed, nor can the
// names of networks. Whoever has a sandbox's id finds them all the same, as long as Reserve has told of it.

// Reserve says that the sandbox's objects are those of the place; Release, that they are not any more.
func (c *Client) Reserve(sandboxID, place string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[sandboxID], c.tenants[place] = place, sandboxID
}

func (c *Client) Release(sandboxID, place string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.places, sandboxID)
	delete(c.tenants, place)
}

// Place is the id that the sandbox's objects have: its own, or that of its place.
func (c *Client) Place(sandboxID string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placeLocked(sandboxID)
}

func (c *Client) placeLocked(sandboxID string) string {
	if place := c.places[sandboxID]; place != "" {
		return place
	}
	return sandboxID
}

// Tenant is the sandbox whose objects have this id; a place that is nobody's is its own.
func (c *Client) Tenant(id string) string {
	if !runtime.IsPlace(id) {
		return id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if tenant := c.tenants[id]; tenant != "" {
		return tenant
	}
	return id
}

// SandboxOf is the sandbox that an object with these labels belongs to, or the place that is nobody's.
func (c *Client) SandboxOf(labels map[string]string) string { return c.Tenant(labels[LabelSandbox]) }
