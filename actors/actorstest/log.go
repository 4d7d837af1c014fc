package actorstest

import (
	"context"
	"fmt"
)

// Story returns paths at which there is nothing.
func (r *Runtime) Story(sandboxID string) (older, newer string) {
	path := fmt.Sprintf("/logs/%s/_story", sandboxID)
	return path + ".older.log", path + ".log"
}

// ServiceLog is that of a service that has written nothing; there is none in a sandbox that does not run.
func (r *Runtime) ServiceLog(_ context.Context, sandboxID, _ string, _ *uint64, _ bool, _ func(stream string, data []byte) error) (found bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[sandboxID], nil
}
