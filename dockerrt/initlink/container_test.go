package initlink_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/dockerrt/dockertest"
	"github.com/agbox-dev/agbox/dockerrt/initlink"
)

// contain returns a container that init is PID 1 of, and a link to it.
func contain(t *testing.T, memory int64) (*client.Client, string, *initlink.Link) {
	t.Helper()
	cli := dockertest.Engine(t)
	dir := t.TempDir()
	l := listen(t, filepath.Join(dir, "s"), trust)
	created, err := cli.ContainerCreate(limit(t), &container.Config{
		Image: dockertest.TinyImage(t, cli, dockertest.Busybox), Entrypoint: []string{"/.agbox/init"},
	}, &container.HostConfig{
		Binds:       []string{dir + ":/.agbox/run:ro", dockertest.InitBinary(t) + ":/.agbox/init:ro"},
		NetworkMode: "none", Resources: container.Resources{Memory: memory, MemorySwap: memory},
	}, nil, nil, "")
	check(t, err)
	t.Cleanup(func() {
		check(t, cli.ContainerRemove(limit(t), created.ID, container.RemoveOptions{Force: true}))
	})
	check(t, cli.ContainerStart(limit(t), created.ID, container.StartOptions{}))
	check(t, l.Connected(limit(t)))
	return cli, created.ID, l
}

func script(t *testing.T, id, text string) initlink.ExecSpec {
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
