package dockertest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

func TestTinyImage(t *testing.T) {
	cli := dockertest.Engine(t)
	for _, c := range []struct {
		variant dockertest.Variant
		command []string
		stdout  string
		stderr  string
		code    int64
	}{
		{dockertest.Busybox, []string{"sh", "-c", "id -u; su agbox -c 'id -u; cd; pwd; touch mine'"}, "0\n1000\n/home/agbox\n", "", 0},
		{dockertest.RootOnly, []string{"cat", "/etc/passwd"}, "root:x:0:0:root:/root:/bin/sh\n", "", 0},
		{dockertest.ImageUser, []string{"sh", "-c", "id -u; touch /tmp/x && echo $PATH"}, "1234\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", "", 0},
		{dockertest.NoShell, []string{"probe", "args", "a b", "$c"}, "a b\n$c\n", "", 0},
		{dockertest.NoShell, []string{"probe", "env", "PATH"}, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", "", 0},
		{dockertest.NoShell, []string{"probe", "id"}, "uid=0\ngid=0\ngroups=[0]\ncwd=/\n", "", 0},
		{dockertest.NoShell, []string{"probe", "write", "70", "3"}, strings.Repeat("x", 63) + "\nxxxxxx", "xxx", 0},
		{dockertest.NoShell, []string{"probe", "exit", "42"}, "", "", 42},
		{dockertest.EntrypointPrepares, []string{"sh", "-c", "cat /prepared; id -u agbox", "with", "words"}, "entrypoint: prepared\n0 sh -c cat /prepared; id -u agbox with words\n1000\n", "", 0},
		{dockertest.EntrypointExits, []string{"true"}, "", "entrypoint: giving up\n", 3},
	} {
		t.Run(string(c.variant)+" "+c.command[0], func(t *testing.T) {
			id := create(t, cli, &container.Config{Image: dockertest.TinyImage(t, cli, c.variant), Cmd: c.command})
			stdout, stderr, code := run(t, cli, id)
			if stdout != c.stdout || stderr != c.stderr || code != c.code {
				t.Errorf("%q gave %q, %q and exit %d; want %q, %q and %d", c.command, stdout, stderr, code, c.stdout, c.stderr, c.code)
			}
		})
	}
}

func TestEntrypointStays(t *testing.T) {
	cli := dockertest.Engine(t)
	id := create(t, cli, &container.Config{Image: dockertest.TinyImage(t, cli, dockertest.EntrypointStays), Cmd: []string{"true"}})
	if err := cli.ContainerStart(t.Context(), id, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	logs, err := cli.ContainerLogs(t.Context(), id, container.LogsOptions{ShowStdout: true, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	const said = "entrypoint: waiting\n"
	line := make([]byte, 8+len(said))
	if _, err := io.ReadFull(logs, line); err != nil || !strings.HasSuffix(string(line), said) {
		t.Fatalf("logs gave %q, %v", line, err)
	}
	if state, err := cli.ContainerInspect(t.Context(), id); err != nil || !state.State.Running {
		t.Errorf("the entrypoint did not stay: %+v, %v", state.State, err)
	}
}

func TestTinyImageIsMadeOnce(t *testing.T) {
	cli := dockertest.Engine(t)
	var ids [2]string
	for i := range ids {
		ref := dockertest.TinyImage(t, cli, dockertest.Busybox)
		inspect, err := cli.ImageInspect(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = inspect.ID
	}
	if ids[0] != ids[1] {
		t.Errorf("the second call made another image: %v", ids)
	}
}

func TestImportRefusesBadTar(t *testing.T) {
	cli := dockertest.Engine(t)
	const ref = "agbox-test/bad:1"
	if err := dockertest.Import(t.Context(), cli, ref, strings.NewReader("no tar"), nil); err == nil {
		t.Error("imported what is no tar")
	}
	if have, err := dockertest.HasImage(t.Context(), cli, ref); have || err != nil {
		t.Errorf("HasImage = %v, %v", have, err)
	}
}

func TestLeftovers(t *testing.T) {
	cli := dockertest.Engine(t)
	const mine, other = "dockertest-leftovers", "dockertest-leftovers-2"
	labels := map[string]string{dockertest.SandboxLabel: mine}
	image := dockertest.TinyImage(t, cli, dockertest.NoShell)
	t.Cleanup(func() { observe(t, func(t testing.TB) { dockertest.Leftovers(t, cli, mine) }) })
	offline := &container.HostConfig{NetworkMode: "none"}
	left, err := cli.ContainerCreate(t.Context(), &container.Config{Image: image, Labels: labels}, offline, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	kept := create(t, cli, &container.Config{Image: image, Labels: map[string]string{dockertest.SandboxLabel: other}})
	if err := cli.ContainerStart(t.Context(), left.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cli.NetworkCreate(t.Context(), "agbox-net-"+mine, network.CreateOptions{
		Driver: "bridge", Internal: true, Labels: labels,
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.254.253.240/28"}}},
	}); err != nil {
		t.Fatal(err)
	}

	found := observe(t, func(t testing.TB) { dockertest.Leftovers(t, cli, mine) })
	if said := strings.Join(found.errors, "\n"); len(found.errors) != 2 || !strings.Contains(said, "network agbox-net-"+mine) {
		t.Errorf("Leftovers said %q", said)
	}
	if again := observe(t, func(t testing.TB) { dockertest.Leftovers(t, cli, mine) }); len(again.errors) != 0 {
		t.Errorf("Leftovers did not remove what it found: %q", again.errors)
	}
	if _, err := cli.ContainerInspect(t.Context(), kept); err != nil {
		t.Errorf("another sandbox's container: %v", err)
	}
}

func TestEngineMissing(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	log := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(skiplog.SkipLog, log)
	for _, c := range []struct{ require, skipped, failed string }{
		{"", "SKIP: TestEngineMissing: no Docker engine", ""},
		{"1", "", "AGBOX_REQUIRE_ENGINE=1, but no Docker engine"},
	} {
		t.Setenv(skiplog.RequireEngine, c.require)
		saw := observe(t, func(t testing.TB) { dockertest.Engine(t) })
		if !strings.HasPrefix(saw.skipped, c.skipped) || !strings.HasPrefix(saw.fatal, c.failed) ||
			strings.Contains(saw.skipped+saw.fatal, "\n") {
			t.Errorf("require=%q: skipped %q, failed %q", c.require, saw.skipped, saw.fatal)
		}
		if c.skipped != "" {
			if line, err := os.ReadFile(log); err != nil || string(line) != saw.skipped+"\n" {
				t.Errorf("the log of skips holds %q, %v", line, err)
			}
		}
	}
}

func TestInitBinary(t *testing.T) {
	path := dockertest.InitBinary(t)
	if again := dockertest.InitBinary(t); again != path {
		t.Errorf("second call: %s, first: %s", again, path)
	}
	if out, err := exec.Command(path, "version").CombinedOutput(); err != nil {
		t.Errorf("agbox-init version: %v\n%s", err, out)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o055 != 0o055 {
		t.Errorf("other users must be able to run it: %v, %v", info.Mode(), err)
	}
}

// create makes a container without network that is removed when t ends.
func create(t *testing.T, cli *client.Client, config *container.Config) (id string) {
	t.Helper()
	made, err := cli.ContainerCreate(t.Context(), config, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cli.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, container.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	return made.ID
}

// run starts a container and returns what it wrote and how it ended.
func run(t *testing.T, cli *client.Client, id string) (stdout, stderr string, code int64) {
	t.Helper()
	ended, failed := cli.ContainerWait(t.Context(), id, container.WaitConditionNextExit)
	if err := cli.ContainerStart(t.Context(), id, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case end := <-ended:
		code = end.StatusCode
	case err := <-failed:
		t.Fatal(err)
	}
	logs, err := cli.ContainerLogs(t.Context(), id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	var out, errs bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &errs, logs); err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

// observer is a testing.TB that remembers a verdict in place of passing it on.
type observer struct {
	testing.TB
	errors         []string
	skipped, fatal string
}

func observe(t *testing.T, f func(testing.TB)) *observer {
	o := &observer{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(o)
	}()
	<-done
	return o
}

func (o *observer) Errorf(format string, args ...any) {
	o.errors = append(o.errors, fmt.Sprintf(format, args...))
}
func (o *observer) Fatalf(format string, args ...any) {
	o.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (o *observer) Skip(args ...any) {
	o.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}
