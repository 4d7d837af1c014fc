package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// ServiceLog calls send with what the service has written to "stdout" and "stderr", in order, up to now; with follow, on
// until its container ends. With tail it begins so many bytes of both before the end that there is now. found is false
// for a service that has no container. A send that waits holds back the engine; its error, or the end of ctx, ends the
// reading. Docker keeps the last 20 to 30 MB of a service's output.
func (ss *Services) ServiceLog(ctx context.Context, sandboxID, service string, tail *uint64, follow bool, send func(stream string, data []byte) error) (found bool, err error) {
	made, err := ss.serviceContainer(ctx, sandboxID, service)
	if errors.Is(err, engine.ErrMissing) {
		return false, nil
	} else if err != nil {
		return false, engine.Unreachable(err)
	}
	var skip uint64
	if tail != nil { // Docker counts lines: to go back by bytes, all have to be counted
		var size uint64
		err := ss.serviceOutput(ctx, made.ID, false, func(_ string, data []byte) error {
			size += uint64(len(data))
			return nil
		})
		if err != nil {
			return true, engine.Unreachable(err)
		}
		skip = size - min(*tail, size)
	}
	return true, engine.Unreachable(ss.serviceOutput(ctx, made.ID, follow, func(stream string, data []byte) error {
		n := min(skip, uint64(len(data)))
		skip -= n
		if data = data[n:]; len(data) == 0 {
			return nil
		}
		return send(stream, data)
	}))
}

// serviceOutput passes on a container's output; pieces hold what one of its writes did, 16 KiB at most.
func (ss *Services) serviceOutput(ctx context.Context, containerID string, follow bool, pass func(stream string, data []byte) error) error {
	ctx, cancel := context.WithCancel(ctx) // the connection ends with the reading
	defer cancel()
	body, err := ss.engine.ContainerLogs(ctx, containerID, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: follow})
	if err != nil {
		return fmt.Errorf("cannot read its output: %w", err)
	}
	defer body.Close()
	_, err = stdcopy.StdCopy(&streamWriter{"stdout", pass}, &streamWriter{"stderr", pass}, body)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// streamWriter passes on what is written to one stream.
type streamWriter struct {
	stream string
	pass   func(stream string, data []byte) error
}

func (w *streamWriter) Write(p []byte) (int, error) {
	if err := w.pass(w.stream, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
