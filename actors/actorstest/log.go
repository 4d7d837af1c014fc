package actorstest

import (
	"context"
	"fmt"
)

// OperationLog returns paths at which there is nothing.
func (r *Runtime) OperationLog(sandboxID string) (older, newer string) {
	path := fmt.Sprintf("/operation-logs/%s/", sandboxID)
	return path + "older", path + "log"
}

// ServiceLog is that of a service that has written nothing; there is none in a sandbox that does not run.
func (r *Runtime) ServiceLog(_ context.Context, sandboxID, _ string, _ *uint64, _ bool, _ func(stream string, data []byte) error) (found bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[sandboxID], nil
}
