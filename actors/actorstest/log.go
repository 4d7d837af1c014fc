package actorstest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// OperationLog returns the path of a file with a line for each operation, at which there is nothing without Logs.
func (r *Runtime) OperationLog(sandboxID string) (older, newer string) {
	path := fmt.Sprintf("%s/operation-logs/%s/", r.Logs, sandboxID)
	return path + "older", path + "log"
}

// log is called with the runtime locked.
func (r *Runtime) log(sandboxID, line string) {
	if r.Logs == "" {
		return
	}
	_, path := r.OperationLog(sandboxID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		panic(err) // a test's own directory
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintln(file, line)
}

// ServiceLog is what ServiceOutput says; there is none in a sandbox that does not run.
func (r *Runtime) ServiceLog(_ context.Context, sandboxID, service string, _ *uint64, _ bool, send func(stream string, data []byte) error) (found bool, err error) {
	if !r.isRunning(sandboxID) || r.ServiceOutput == nil {
		return r.isRunning(sandboxID), nil
	}
	stdout, stderr := r.ServiceOutput(service)
	for name, text := range map[string]string{"stdout": stdout, "stderr": stderr} {
		if err := send(name, []byte(text)); err != nil {
			return true, err
		}
	}
	return true, nil
}

// ExecIndex returns the path of what Play's output has come to; of Run's there is nothing.
func (r *Runtime) ExecIndex(sandboxID, execID string) string {
	return fmt.Sprintf("%s/logs/%s/%s.index", r.Logs, sandboxID, execID)
}
