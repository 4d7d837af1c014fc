package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// StartPrimary starts the primary container, with the mounts that were accepted or not at all. What an earlier life's command left
// as its result is forgotten.
func (cs *Containers) StartPrimary(ctx context.Context, sandboxID string, link *links.Link, spec *agboxv1.CreateSpec) (err error) {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	defer oplog.Step(ctx, "started", "container %s", engine.PrimaryName(sandboxID))(&err)
	if err := os.Remove(cs.layout.Result(sandboxID, runtime.CommandID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if link.Relayed() {
		if err := cs.links.PlaceInit(ctx, sandboxID); err != nil {
			return Explained(err)
		}
	}
	id, err := cs.engine.Primary(ctx, sandboxID)
	if err != nil {
		return err
	}
	starting, cancel := cs.engine.Write(ctx)
	defer cancel()
	if err := cs.mounts.Check(spec, true); err != nil {
		return err
	}
	release, err := cs.mounts.Hold(sandboxID, spec)
	if err != nil {
		return err
	}
	if err := errors.Join(cs.engine.ContainerStart(starting, id, container.StartOptions{}), release()); err != nil {
		return Explained(fmt.Errorf("cannot start container %s: %w", engine.PrimaryName(sandboxID), err))
	}
	if err := cs.confirmMounts(starting, sandboxID, link, spec); err != nil {
		killing, cancel := cs.engine.Write(ctx) // the engine may have used up all the time for the start
		defer cancel()
		return errors.Join(err, cs.engine.ContainerKill(killing, id, "KILL"))
	}
	link.Started()
	return nil
}

// confirmMounts is mount.Mounts.Confirm. What another system, or another kernel, shows to the sandbox cannot be seen from
// here: a relayed sandbox is not looked at.
func (cs *Containers) confirmMounts(ctx context.Context, sandboxID string, link *links.Link, spec *agboxv1.CreateSpec) error {
	if len(spec.Mounts) == 0 || cs.layout.Relayed(sandboxID) {
		return nil
	}
	pid, resolve, err := cs.files.Primary(ctx, sandboxID)
	if err != nil {
		return err
	}
	if err = cs.mounts.Confirm(spec, pid, resolve); err == nil {
		link.Found(pid)
	}
	return err
}

// entrypointTimeout is the contract's: an entrypoint that has not handed over by then fails the create.
const entrypointTimeout = 60 * time.Second

// BootPrimary waits until agbox-init is there and the image's entrypoint has handed over, or the container is not.
func (cs *Containers) BootPrimary(ctx context.Context, sandboxID string, link *links.Link, life string, spec *agboxv1.CreateSpec) (err error) {
	command := len(spec.Command) > 0
	began, what := time.Now(), "entrypoint"
	defer func() { oplog.Stepped(ctx, began, err, "done", "%s", what) }()
	stdout, stderr, err := cs.layout.OpenOutputs(sandboxID, runtime.CommandID)
	if err != nil {
		return err
	}
	defer stdout.Close()
	defer stderr.Close()
	from, err := layout.BeginLife(stdout, stderr)
	if err != nil {
		return err
	}
	if from != (layout.Beginning{}) {
		oplog.Printf(ctx, "the output of an earlier life ends at byte %d of stdout and %d of stderr", from[0], from[1])
	}
	var record *os.File
	if command {
		if record, err = cs.layout.OpenRecord(sandboxID, runtime.CommandID); err != nil {
			return err
		}
		defer record.Close()
		if err := cs.layout.Begin(sandboxID, life); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithTimeout(ctx, entrypointTimeout)
	defer cancel()
	id, err := cs.engine.Primary(ctx, sandboxID)
	if err != nil {
		return err
	}
	exited, waitErrs := cs.engine.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	booted := make(chan error, 1)
	var status protocol.BootStatus
	go func() {
		var err error
		status, err = link.Boot(ctx, cs.identity(sandboxID, spec), stdout, stderr, record)
		booted <- err
	}()
	for {
		select {
		case err := <-booted:
			if err == nil && status.State == protocol.BootNone {
				what = "start of agbox-init"
			}
			if err == nil && status.State == protocol.BootExited && command {
				return engine.Coded("SANDBOX_COMMAND_FAILED", "the command did not start: the exit code is %d; output: %s",
					status.ExitCode, cs.layout.OutputTail(sandboxID, runtime.CommandID, from))
			}
			if err == nil && status.State == protocol.BootExited {
				oplog.Printf(ctx, "the image's entrypoint ended by itself with exit code %d, signal %d; its output: %s",
					status.ExitCode, status.Signal, oplog.Redact(ctx, cs.layout.OutputTail(sandboxID, runtime.CommandID, from)))
				cs.log.Info("the image's entrypoint ended by itself", "sandbox_id", sandboxID,
					"exit_code", status.ExitCode, "signal", status.Signal)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("the image's entrypoint did not hand over within %s: it should end in exec \"$@\"; its output: %s",
					entrypointTimeout, cs.layout.OutputTail(sandboxID, runtime.CommandID, from))
			}
			return err
		case wait := <-exited:
			cancel()
			<-booted
			return fmt.Errorf("the primary container ended at once with exit code %d: %s",
				wait.StatusCode, cs.engine.Tail(context.WithoutCancel(ctx), id, ""))
		case err := <-waitErrs:
			waitErrs = nil // the boot tells
			cs.log.Debug("wait for a container's end failed", "sandbox_id", sandboxID, "error", err)
		}
	}
}
