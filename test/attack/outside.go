package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/agbox-dev/agbox/sdk"
)

// linkAttacks are on what lies between a sandbox and the daemon.
var linkAttacks = []*attack{
	{point: "B5", name: "docker restart while the daemon is stopped", play: func(ctx context.Context, b *box) error {
		exec, err := b.hold(ctx, []string{"sh", "-c", "echo held; sleep 600"})
		if err != nil {
			return err
		}
		if err := b.blind(func() error {
			now := 0
			return b.Engine.ContainerRestart(ctx, b.primary(), container.StopOptions{Timeout: &now})
		}); err != nil {
			return err
		}
		if err := b.fails(ctx, "CONTAINER_NOT_RUNNING"); err != nil {
			return err
		}
		if err := ended(within(ctx, patience, "the end of its exec", func(ctx context.Context) error {
			_, err := b.SDK.WaitExec(ctx, exec)
			return err
		})); err != nil {
			return err
		}
		if said, err := os.ReadFile(exec.StdoutPath); err != nil || string(said) != "held\n" {
			return fmt.Errorf("the exec ran again, or its output is lost: %q, %v", said, err)
		}
		return nil
	}},
	{point: "B12", name: "docker network disconnect", play: func(ctx context.Context, b *box) error {
		found, err := b.Engine.ContainerInspect(ctx, b.primary())
		if err != nil {
			return err
		}
		if err := b.Engine.NetworkDisconnect(ctx, string(found.HostConfig.NetworkMode), b.primary(), true); err != nil {
			return err
		}
		return b.fails(ctx, "NETWORK_LOST")
	}},
	{point: "B12", name: "docker rename", play: func(ctx context.Context, b *box) error {
		if err := b.Engine.ContainerRename(ctx, b.primary(), "renamed-"+b.id); err != nil {
			return err
		}
		if err := b.works(ctx); err != nil {
			return err
		}
		for what, do := range map[string]func(ctx context.Context) error{
			"stop and resume": func(ctx context.Context) error {
				return errors.Join(b.SDK.Stop(ctx, b.id), b.SDK.Resume(ctx, b.id))
			},
			"pause": func(ctx context.Context) error {
				return errors.Join(b.SDK.Pause(ctx, b.id), b.SDK.Unpause(ctx, b.id))
			},
		} {
			if err := within(ctx, 2*patience, what, do); err != nil {
				return err
			}
		}
		if err := b.works(ctx); err != nil {
			return err
		}
		return b.gone(ctx, "renamed-"+b.id)
	}},
}

// blind does something while the daemon is stopped.
func (b *box) blind(do func() error) error {
	pid := b.Daemon.Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	return do()
}

// gone deletes the sandbox and looks for a container of this name.
func (b *box) gone(ctx context.Context, name string) error {
	if err := b.remove(ctx); err != nil {
		return err
	}
	if _, err := b.Engine.ContainerInspect(ctx, name); err == nil {
		return fmt.Errorf("container %s is left", name)
	}
	return nil
}

// engineAttacks are by what other users of the engine and of the host have.
var engineAttacks = []*attack{
	{point: "B7", name: "another's container of a committed image", play: func(ctx context.Context, b *box) (err error) {
		ref := "agbox-test/attack:" + b.id
		if _, err := b.Engine.ContainerCommit(ctx, b.primary(), container.CommitOptions{Reference: ref}); err != nil {
			return err
		}
		made, err := b.Engine.ContainerCreate(ctx, &container.Config{Image: ref, Entrypoint: []string{"sleep", "600"}}, nil, nil, nil, "others-"+b.id)
		if err == nil {
			err = b.Engine.ContainerStart(ctx, made.ID, container.StartOptions{})
		}
		defer func() {
			_, imageErr := b.Engine.ImageRemove(context.WithoutCancel(ctx), ref, image.RemoveOptions{Force: true})
			err = errors.Join(err, imageErr)
		}()
		if made.ID != "" {
			defer func() {
				err = errors.Join(err, b.Engine.ContainerRemove(context.WithoutCancel(ctx), made.ID, container.RemoveOptions{Force: true}))
			}()
		}
		if err != nil {
			return err
		}
		if err := within(ctx, 2*patience, "delete", func(ctx context.Context) error { return b.SDK.Delete(ctx, b.id) }); err != nil {
			return err
		}
		found, err := b.Engine.ContainerInspect(ctx, made.ID)
		if err != nil || !found.State.Running {
			return fmt.Errorf("somebody else's container does not run any more: %w", err)
		}
		return nil
	}},
	{point: "item 1", name: "a mount's source exchanged before a resume", prepare: func(b *box, spec *sdk.Spec) error {
		data := filepath.Join(b.shared, "data")
		spec.Mounts = append(spec.Mounts, sdk.Mount{Source: data, Target: "/data"})
		return errors.Join(os.Mkdir(data, 0o777), os.Chmod(data, 0o777))
	}, play: func(ctx context.Context, b *box) error {
		if err := b.script(ctx, "cd /shared && mv data away && ln -s / data"); err != nil {
			return err
		}
		if err := within(ctx, 2*patience, "stop", func(ctx context.Context) error { return b.SDK.Stop(ctx, b.id) }); err != nil {
			return err
		}
		taken := filepath.Join(b.config.dir, b.id)
		defer os.RemoveAll(taken)
		err := within(ctx, patience, "download", func(ctx context.Context) error {
			return b.SDK.Download(ctx, b.id, "/data/etc/hostname", taken)
		})
		if err == nil {
			return errors.New("a file of the host came out")
		}
		if err := ended(err); err != nil {
			return err
		}
		err = within(ctx, 2*patience, "resume", func(ctx context.Context) error { return b.SDK.Resume(ctx, b.id) })
		if err == nil {
			return errors.New("the sandbox has the host's root at /data")
		}
		if err := ended(err); err != nil {
			return err
		}
		return b.fails(ctx, "MOUNT_SOURCE_CHANGED")
	}},
}
