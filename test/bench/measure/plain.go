package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// plain does by the Engine API what a daemon is measured beside: a container that stays up, on a network of its own.
type plain struct {
	engine *client.Client
	image  string

	mu   sync.Mutex
	made int
	left map[string]bool // names of what was made and not removed
}

// engineNetworks is where these networks lie, /28s in turn.
const engineNetworks = "10.215.%d.%d/28"

// create returns the name of both.
func (p *plain) create(ctx context.Context) (name string, err error) {
	p.mu.Lock()
	n := p.made
	p.made++
	name = fmt.Sprintf("agbox-bench-%d-%d", time.Now().UnixNano(), n)
	if p.left == nil {
		p.left = map[string]bool{}
	}
	p.left[name] = true
	p.mu.Unlock()
	subnet := fmt.Sprintf(engineNetworks, n/16%256, n%16*16)
	_, err = p.engine.NetworkCreate(ctx, name, network.CreateOptions{Driver: "bridge", IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}}})
	if err != nil {
		return name, err
	}
	created, err := p.engine.ContainerCreate(ctx, &container.Config{Image: p.image, Cmd: []string{"sleep", "100000"}},
		&container.HostConfig{NetworkMode: container.NetworkMode(name)}, nil, nil, name)
	if err != nil {
		return name, err
	}
	return name, p.engine.ContainerStart(ctx, created.ID, container.StartOptions{})
}

// stop ends the container, and waits for that.
func (p *plain) stop(ctx context.Context, name string) error {
	if err := p.engine.ContainerKill(ctx, name, "KILL"); err != nil {
		return err
	}
	exited, errs := p.engine.ContainerWait(ctx, name, container.WaitConditionNotRunning)
	select {
	case <-exited:
		return nil
	case err := <-errs:
		return err
	}
}

// remove removes both.
func (p *plain) remove(ctx context.Context, name string) error {
	err := p.engine.ContainerRemove(ctx, name, container.RemoveOptions{Force: true})
	if err == nil || cerrdefs.IsNotFound(err) {
		err = p.engine.NetworkRemove(ctx, name)
	}
	if err == nil || cerrdefs.IsNotFound(err) {
		p.mu.Lock()
		delete(p.left, name)
		p.mu.Unlock()
		return nil
	}
	return err
}

// burst creates n of them, so many at a time.
func (p *plain) burst(ctx context.Context, n, atOnce int) (took time.Duration, names []string, err error) {
	names, errs := make([]string, n), make([]error, n)
	turn := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	clock := time.Now()
	for i := range n {
		group.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			names[i], errs[i] = p.create(ctx)
		})
	}
	group.Wait()
	return time.Since(clock), names, errors.Join(errs...)
}

// exec runs a command by Docker's own exec, attached, until its exit code is known, and returns how much it has said.
func (p *plain) exec(ctx context.Context, name string, command ...string) (said int64, err error) {
	created, err := p.engine.ContainerExecCreate(ctx, name, container.ExecOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return 0, err
	}
	attached, err := p.engine.ContainerExecAttach(ctx, created.ID, container.ExecAttachOptions{})
	if err != nil {
		return 0, err
	}
	defer attached.Close()
	if said, err = io.Copy(io.Discard, attached.Reader); err != nil {
		return said, err
	}
	ended, err := p.engine.ContainerExecInspect(ctx, created.ID)
	if err == nil && (ended.Running || ended.ExitCode != 0) {
		err = fmt.Errorf("docker's exec ended with %+v", ended)
	}
	return said, err
}

// close removes what is left.
func (p *plain) close() error {
	var errs []error
	for name := range p.left {
		errs = append(errs, p.remove(context.Background(), name))
	}
	return errors.Join(errs...)
}
