package link_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// contain returns a container that init is PID 1 of, as the daemon makes them, and a link to it.
func contain(t *testing.T, memory int64) (*client.Client, string, *link.Link) {
	t.Helper()
	return containWith(t, container.Resources{Memory: memory, MemorySwap: memory})
}

func containWith(t *testing.T, limits container.Resources) (*client.Client, string, *link.Link) {
	t.Helper()
	cli := dockertest.Engine(t)
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "held"), []byte("#!/bin/sh\n"), 0o755))
	l := listen(t, filepath.Join(dir, "s"), trust)
	created, err := cli.ContainerCreate(limit(t), &container.Config{
		Image: dockertest.TinyImage(t, cli, dockertest.Busybox), Entrypoint: []string{"/.agbox/init"},
	}, &container.HostConfig{
		Binds:       []string{dir + ":/.agbox/run:ro", dockertest.InitBinary(t) + ":/.agbox/init:ro"},
		NetworkMode: "none", Resources: limits, SecurityOpt: []string{"no-new-privileges"}, CapDrop: []string{"NET_RAW", "MKNOD"},
	}, nil, nil, "")
	check(t, err)
	t.Cleanup(func() {
		check(t, cli.ContainerRemove(limit(t), created.ID, container.RemoveOptions{Force: true}))
	})
	check(t, cli.ContainerStart(limit(t), created.ID, container.StartOptions{}))
	check(t, l.Connected(limit(t)))
	return cli, created.ID, l
}

// mounted is the host's path of what the container has at /.agbox/run.
func mounted(t *testing.T, cli *client.Client, id string) string {
	t.Helper()
	found, err := cli.ContainerInspect(limit(t), id)
	check(t, err)
	source, _, _ := strings.Cut(found.HostConfig.Binds[0], ":")
	return source
}

func script(t *testing.T, id, text string) link.ExecSpec {
	t.Helper()
	s := spec(t, id)
	s.Argv = []string{"sh", "-c", text}
	return s
}

func TestContainerOOM(t *testing.T) {
	_, _, l := contain(t, 32<<20)
	r, err := l.Exec(limit(t), script(t, "hog", `x=0123456789abcdef; while :; do x="$x$x"; done`))
	if err != nil || r.Signal != 9 || !r.OOM {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err = l.Exec(limit(t), script(t, "suicide", "kill -KILL $$"))
	if err != nil || r.Signal != 9 || r.OOM {
		t.Fatalf("%+v, %v", r, err)
	}
}

// Many small processes take all the memory: PID 1, which is larger than any, is not the one to go.
func TestContainerOOMOfMany(t *testing.T) {
	_, _, l := contain(t, 64<<20)
	for _, id := range []string{"first"} {
		r, err := l.Exec(limit(t), script(t, id, `i=0; while test $i -lt 600; do sh -c 'x=0123456789abcdef; while test ${#x} -lt 130000; do x="$x$x"; done; sleep 1; :' & i=$((i+1)); done; wait`))
		if err != nil || r.ErrorCode != "" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

// What a command does in a container as the daemon makes them to get away from its timeout, and to hold up PID 1.
func TestContainerNoEscape(t *testing.T) {
	cli, id, l := contain(t, 0)
	s := script(t, "escapes", "(setsid sh -c 'ulimit -S -x unlimited; setsid sleep 600' &); ulimit -S -x unlimited; echo $(ulimit -S -x); exec sleep 600")
	s.User, s.Timeout, s.Grace = "1000", 200*time.Millisecond, 50*time.Millisecond
	held := script(t, "held", "")
	held.Argv, held.Timeout, held.Grace = []string{"/.agbox/run/held"}, 300*time.Millisecond, 50*time.Millisecond
	file, err := os.Open(filepath.Join(mounted(t, cli, id), "held"))
	check(t, err)
	defer file.Close()
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	check(t, err)
	for _, done := range []<-chan answer{exec(l, limit(t), s), exec(l, limit(t), held)} {
		if a := <-done; a.error != nil || !a.TimedOut {
			t.Fatalf("%+v", a)
		}
	}
	top, err := cli.ContainerTop(limit(t), id, nil)
	check(t, err)
	if len(top.Processes) != 1 {
		t.Fatalf("%q", top.Processes)
	}
}

// A timeout that is over many times while the container is paused strikes after Thaw.
func TestContainerPaused(t *testing.T) {
	cli, id, l := contain(t, 0)
	check(t, l.Freeze(limit(t)))
	const timeout = 20 * time.Millisecond
	r, w, err := os.Pipe()
	check(t, err)
	defer r.Close()
	defer w.Close()
	s := script(t, "waits", "mkfifo -m 666 /tmp/gate; echo ready; cat /tmp/gate; echo alive; sleep 300")
	s.Timeout, s.Files[0] = timeout, w
	done := exec(l, context.Background(), s)
	output := bufio.NewReader(r)
	says(t, output, "ready\n")
	check(t, cli.ContainerPause(limit(t), id))
	<-time.After(10 * timeout)
	check(t, cli.ContainerUnpause(limit(t), id))
	opened, err := l.Exec(limit(t), script(t, "opens", "echo open > /tmp/gate"))
	if err != nil || opened.ExitCode != 0 {
		t.Fatalf("%+v, %v", opened, err)
	}
	says(t, output, "open\n")
	says(t, output, "alive\n")
	l.Thaw()
	if a := <-done; a.error != nil || !a.TimedOut || a.Signal != 15 {
		t.Fatalf("%+v", a)
	}
}

func says(t *testing.T, from *bufio.Reader, want string) {
	t.Helper()
	if got, err := from.ReadString('\n'); got != want {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
}
