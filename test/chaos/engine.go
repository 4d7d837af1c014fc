package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	dockerclient "github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/test/dockertest"
)

// socketOf returns the path of an engine's Unix socket.
func socketOf(host string) string { return strings.TrimPrefix(host, "unix://") }

// Engine is a private dockerd with everything below one directory, as .ci/engine makes it. Only root can have one.
// Its methods belong to one goroutine, but Host and Client.
type Engine struct {
	root, script string
	liveRestore  bool
}

// NewEngine starts an engine below root, whose path must be short for the sockets in it. With liveRestore containers
// go on while the engine is away; without, it stops them when Stop ends it. An engine that already runs there is
// taken as it is. End must follow, also after an error.
func NewEngine(ctx context.Context, root string, liveRestore bool) (*Engine, error) {
	module, err := dockertest.ModuleRoot()
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	e := &Engine{root: root, script: filepath.Join(module, ".ci", "engine"), liveRestore: liveRestore}
	return e, e.Start(ctx)
}

// Host is the engine's address as DOCKER_HOST takes it.
func (e *Engine) Host() string { return "unix://" + filepath.Join(e.root, "docker.sock") }

// Client returns a client of the engine, which may be away. The caller closes it.
func (e *Engine) Client() (*dockerclient.Client, error) {
	return dockerclient.NewClientWithOpts(dockerclient.WithHost(e.Host()), dockerclient.WithAPIVersionNegotiation())
}

// Start starts the engine if it does not run, and returns once it answers.
func (e *Engine) Start(ctx context.Context) error {
	command := exec.CommandContext(ctx, e.script)
	command.Env = append(os.Environ(), "AGBOX_ENGINE_ROOT="+e.root, "AGBOX_ENGINE_LIVE_RESTORE=yes")
	if !e.liveRestore {
		command.Env = append(command.Env, "AGBOX_ENGINE_LIVE_RESTORE=no")
	}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", e.script, err, out)
	}
	return nil
}

// Kill ends the engine as kill -9 does. Its containers go on. A dockerd 20.10 that is killed while it makes a network
// cannot start any more.
func (e *Engine) Kill() error { return e.signal(syscall.SIGKILL) }

// Stop ends the engine with SIGTERM. Its containers go on with live-restore only.
func (e *Engine) Stop() error { return e.signal(syscall.SIGTERM) }

// End ends the engine, and what kills of it have left: its containerd, processes that no containerd knows any more,
// and mounts.
func (e *Engine) End() error {
	if err := e.Stop(); err != nil {
		return err
	}
	containerd := filepath.Join(e.root, "exec", "containerd")
	orphans, err := processesWith("--config", filepath.Join(containerd, "containerd.toml"))
	if err != nil {
		return err
	}
	shims, err := processesWith("-address", filepath.Join(containerd, "containerd.sock"))
	if err != nil {
		return err
	}
	for _, shim := range shims {
		orphans = append(append(orphans, childrenOf(shim)...), shim)
	}
	var errs []error
	for _, pid := range orphans {
		errs = append(errs, end(pid, syscall.SIGKILL, nil))
	}
	return errors.Join(append(errs, e.unmount())...)
}

// unmount takes away what is mounted below the engine's directory, so that it can be removed.
func (e *Engine) unmount() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		place := strings.Fields(line)[1]
		if !strings.HasPrefix(place, e.root+"/") {
			continue
		}
		// EINVAL: it has gone with one that it was below.
		if err := unix.Unmount(place, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("cannot unmount %s: %w", place, err))
		}
	}
	return errors.Join(errs...)
}

// processesWith returns the processes that have these two arguments, one after the other.
func processesWith(flag, value string) ([]int, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	arguments := []byte("\x00" + flag + "\x00" + value + "\x00")
	var found []int
	for _, process := range processes {
		line, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if pid, bad := strconv.Atoi(filepath.Base(process)); err == nil && bad == nil && bytes.Contains(line, arguments) {
			found = append(found, pid)
		}
	}
	return found, nil
}

func childrenOf(pid int) []int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var children []int
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// signal ends the process that the engine's pid file names, when it is that engine.
func (e *Engine) signal(signal syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(e.root, "docker.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return end(pid, signal, []byte(filepath.Join(e.root, "data")))
}

// endTime is how long a process may take to end: a dockerd gives its containers 15 s.
const endTime = 30 * time.Second

// end sends the signal to the process and returns once it has ended. Nothing happens when there is none, or its
// command line does not contain mark.
func end(pid int, signal syscall.Signal, mark []byte) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(handle)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(line, mark) {
		return nil // the number is another's by now
	}
	if err := unix.PidfdSendSignal(handle, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, int(endTime/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && ready == 0 {
			err = fmt.Errorf("%w: pid %d", ErrNotKilled, pid)
		}
		return err
	}
}
