package dockerrt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

// start starts the primary container and returns once commands can run in it.
func (d *Docker) start(ctx context.Context, sandboxID string, link *sandboxLink) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	name := primaryName(sandboxID)
	starting, cancel := d.write(ctx)
	defer cancel()
	if err := d.api.ContainerStart(starting, name, container.StartOptions{}); err != nil {
		return fmt.Errorf("cannot start container %s: %w", name, err)
	}
	link.started()
	return d.boot(ctx, sandboxID, link)
}

// boot waits until agbox-init is there and the image's entrypoint has handed over, or the container is not.
func (d *Docker) boot(ctx context.Context, sandboxID string, link *sandboxLink) error {
	stdout, stderr, err := d.openOutputs(sandboxID, primaryLog)
	if err != nil {
		return err
	}
	defer stdout.Close()
	defer stderr.Close()

	ctx, cancel := context.WithTimeout(ctx, entrypointTimeout)
	defer cancel()
	exited, waitErrs := d.api.ContainerWait(ctx, primaryName(sandboxID), container.WaitConditionNotRunning)
	booted := make(chan error, 1)
	var status initproto.BootStatus
	go func() {
		var err error
		status, err = link.Boot(ctx, stdout, stderr)
		booted <- err
	}()
	for {
		select {
		case err := <-booted:
			if err == nil && status.State == initproto.BootExited {
				d.log.Info("the image's entrypoint ended by itself", "sandbox_id", sandboxID,
					"exit_code", status.ExitCode, "signal", status.Signal)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("the image's entrypoint did not hand over within %s: it should end in exec \"$@\"; its output: %s",
					entrypointTimeout, d.outputTail(sandboxID, primaryLog))
			}
			return err
		case wait := <-exited:
			cancel()
			<-booted
			return fmt.Errorf("the primary container ended at once with exit code %d: %s",
				wait.StatusCode, d.containerTail(context.WithoutCancel(ctx), sandboxID))
		case err := <-waitErrs:
			waitErrs = nil // the boot tells
			d.log.Debug("wait for a container's end failed", "sandbox_id", sandboxID, "error", err)
		}
	}
}

// tailSize is how much output a person gets to see in an error message.
const tailSize = 2 << 10

func (d *Docker) outputTail(sandboxID, execID string) string {
	var tail []string
	for _, stream := range []string{"stdout", "stderr"} {
		file, err := os.Open(d.layout.log(sandboxID, execID, stream))
		if err != nil {
			continue
		}
		defer file.Close()
		if size, err := file.Seek(0, io.SeekEnd); err == nil {
			file.Seek(max(0, size-tailSize), io.SeekStart)
		}
		if text, err := io.ReadAll(io.LimitReader(file, tailSize)); err == nil && len(text) > 0 {
			tail = append(tail, stream+": "+string(text))
		}
	}
	if len(tail) == 0 {
		return "(none)"
	}
	return strings.Join(tail, "; ")
}

// containerTail returns what agbox-init itself said, as far as it can be had.
func (d *Docker) containerTail(ctx context.Context, sandboxID string) string {
	ctx, cancel := d.read(ctx)
	defer cancel()
	body, err := d.api.ContainerLogs(ctx, primaryName(sandboxID),
		container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return "(no output)"
	}
	defer body.Close()
	var text strings.Builder
	if _, err := stdcopy.StdCopy(&text, &text, io.LimitReader(body, tailSize)); err != nil || text.Len() == 0 {
		return "(no output)"
	}
	return text.String()
}
