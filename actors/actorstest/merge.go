package actorstest

import "fmt"

// ExecIndex returns a path at which there is nothing.
func (r *Runtime) ExecIndex(sandboxID, execID string) string {
	return fmt.Sprintf("/logs/%s/%s.index", sandboxID, execID)
}
