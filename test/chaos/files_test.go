package chaos_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestFilesMemory: 200 MB go in and out again through a daemon that hardly grows.
func TestFilesMemory(t *testing.T) {
	t.Parallel()
	l := filesLife(t, dockertest.Engine(t))
	const size = 200 << 20 // twice what the daemon may grow by
	before := l.peak()
	resp, err := l.client.UploadFiles(l.ctx, &agboxv1.UploadFilesStart{SandboxId: l.id, Path: "/tmp/big"}, bigTar(size))
	if err != nil || resp.Bytes != size {
		t.Fatal(resp, err)
	}
	stream, err := l.client.DownloadFiles(l.ctx, &agboxv1.DownloadFilesRequest{SandboxId: l.id, Path: "/tmp/big"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	in := tar.NewReader(stream)
	for range 2 {
		if _, err := in.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if !same(in, io.LimitReader(rand.NewChaCha8([32]byte{}), size)) {
		t.Error("what comes back is not what was sent")
	}
	grown := l.peak() - before
	t.Logf("%d MiB more than %d MiB", grown>>20, before>>20)
	if grown > 96<<20 {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	l.operate(checker.Delete, deleted)
}

// TestFilesKilled: a daemon that dies in the middle of an upload and of a watch leaves nothing running, and a sandbox
// that can be used.
func TestFilesKilled(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	l := filesLife(t, engine)
	watch, err := l.client.WatchFiles(l.ctx, &agboxv1.WatchFilesRequest{SandboxId: l.id, Path: "/", Recursive: false})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if event, err := watch.Recv(); err != nil || event.Kind != "watching" {
		t.Fatal(event, err)
	}
	if inside := l.inside(engine); len(inside) != 1 {
		t.Fatalf("inside: %q", inside)
	}
	reached := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		_, err := l.client.UploadFiles(l.ctx, &agboxv1.UploadFilesStart{SandboxId: l.id, Path: "/tmp"},
			io.MultiReader(io.LimitReader(bigTar(1<<32), 8<<20), reachedReader{reached}, rand.NewChaCha8([32]byte{})))
		failed <- err
	}()
	select {
	case <-reached:
	case err := <-failed:
		t.Fatal(err)
	}
	l.daemon.Kill()
	if err := <-failed; err == nil {
		t.Error("the upload went well")
	}
	for len(l.inside(engine)) > 0 { // the engine and the kernel end it, and l.ctx ends this
	}
	if err := l.daemon.Start(l.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.StatFile(l.ctx, &agboxv1.StatFileRequest{SandboxId: l.id, Path: "/tmp"}); err != nil {
		t.Error(err)
	}
	if left, err := l.client.ListFiles(l.ctx, &agboxv1.ListFilesRequest{SandboxId: l.id, Path: "/tmp"}); err != nil || len(left.Files) > 0 {
		t.Errorf("the upload has left %v, %v", left.GetFiles(), err)
	}
	l.operate(checker.Stop, stopped)
	l.operate(checker.Delete, deleted)
}

func filesLife(t *testing.T, engine *client.Client) *life {
	l := newLife(t, engine)
	if err := l.daemon.Start(l.ctx); err != nil {
		t.Fatal(err)
	}
	l.operate(checker.Create, ready)
	return l
}

// bigTar is a tar stream of one file.
func bigTar(size int64) io.Reader {
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "big", Size: size, Mode: 0o644}); err != nil {
		panic(err)
	}
	return io.MultiReader(&head, io.LimitReader(rand.NewChaCha8([32]byte{}), size), bytes.NewReader(make([]byte, 1024)))
}

type reachedReader struct{ reached chan struct{} }

func (r reachedReader) Read([]byte) (int, error) { close(r.reached); return 0, io.EOF }

func same(a, b io.Reader) bool {
	left, right := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, left)
		m, errB := io.ReadFull(b, right)
		if n != m || !bytes.Equal(left[:n], right[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return errors.Is(errA, io.EOF) == errors.Is(errB, io.EOF)
		}
	}
}

// peak is the most memory that the daemon ever had, in bytes.
func (l *life) peak() int {
	l.t.Helper()
	conn, err := net.Dial("unix", l.daemon.Socket())
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		l.t.Fatal(err)
	}
	defer file.Close()
	peer, err := unix.GetsockoptUcred(int(file.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		l.t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", peer.Pid))
	if err != nil {
		l.t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		l.t.Fatalf("no peak in %s", status)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n << 10
}

// inside are agbox-init's own commands in the sandbox, as the engine sees them.
func (l *life) inside(engine *client.Client) []string {
	l.t.Helper()
	top, err := engine.ContainerTop(l.ctx, "agbox-primary-"+l.id, []string{"-o", "pid,args"})
	if err != nil {
		if ctx := context.Cause(l.ctx); ctx != nil {
			err = ctx
		}
		l.t.Fatal(err)
	}
	var commands []string
	for _, process := range top.Processes {
		commands = append(commands, strings.Join(process, " "))
	}
	return slices.DeleteFunc(commands, func(c string) bool { return !strings.Contains(c, "init file") })
}
