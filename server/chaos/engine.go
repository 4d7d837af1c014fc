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

	"github.com/agbox-dev/agbox/dockerrt/dockertest"
)

func (w *world) openEngine(ctx context.Context) (err error) {
	if w.config.EngineRoot == "" {
		w.engine, err = dockertest.Connect(ctx)
		return err
	}
	if w.own, err = newEngine(ctx, w.config.EngineRoot); err != nil {
		return err
	}
	w.engine, err = dockerclient.NewClientWithOpts(dockerclient.WithHost(w.own.host()), dockerclient.WithAPIVersionNegotiation())
	return err
}

// socketOf returns the path of an engine's Unix socket.
func socketOf(host string) string { return strings.TrimPrefix(host, "unix://") }

// engine is a private dockerd with everything below one directory, as .ci/engine makes it.
type engine struct{ root, script string }

func newEngine(ctx context.Context, root string) (*engine, error) {
	module, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	e := &engine{root: root, script: filepath.Join(module, ".ci", "engine")}
	return e, e.start(ctx)
}

func (e *engine) host() string { return "unix://" + filepath.Join(e.root, "docker.sock") }

// start makes sure that the engine answers.
func (e *engine) start(ctx context.Context) error {
	command := exec.CommandContext(ctx, e.script)
	command.Env = append(os.Environ(), "AGBOX_ENGINE_ROOT="+e.root)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", e.script, err, out)
	}
	return nil
}

// kill ends the engine as kill -9 does. Its containers go on.
func (e *engine) kill() error { return e.signal(syscall.SIGKILL) }

// end ends the engine, and what kills of it have left: processes that no containerd knows any more, and mounts.
func (e *engine) end() error {
	if err := e.signal(syscall.SIGTERM); err != nil {
		return err
	}
	shims, err := e.shims()
	if err != nil {
		return err
	}
	var errs []error
	for _, shim := range shims {
		for _, pid := range append(childrenOf(shim), shim) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(append(errs, e.unmount())...)
}

// unmount takes away what is mounted below the engine's directory, so that it can be removed.
func (e *engine) unmount() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		if place := strings.Fields(line)[1]; strings.HasPrefix(place, e.root+"/") {
			errs = append(errs, unix.Unmount(place, unix.MNT_DETACH))
		}
	}
	return errors.Join(errs...)
}

// shims are the containerd-shims that this engine has started.
func (e *engine) shims() ([]int, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	address := []byte("\x00-address\x00" + filepath.Join(e.root, "exec", "containerd", "containerd.sock") + "\x00")
	var shims []int
	for _, process := range processes {
		line, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if pid, bad := strconv.Atoi(filepath.Base(process)); err == nil && bad == nil && bytes.Contains(line, address) {
			shims = append(shims, pid)
		}
	}
	return shims, nil
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

// endTime is how long an engine may take to end.
const endTime = 30 * time.Second

// signal ends the process that the engine's pid file names, when it is that engine.
func (e *engine) signal(signal syscall.Signal) error {
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
	handle, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(handle)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(line, []byte(filepath.Join(e.root, "data"))) {
		return nil // the number is another's by now
	}
	if err := unix.PidfdSendSignal(handle, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, int(endTime/time.Millisecond))
	if err == nil && ready == 0 {
		err = fmt.Errorf("%w: dockerd, pid %d", ErrNotKilled, pid)
	}
	return err
}
