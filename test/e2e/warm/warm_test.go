// Package warm_test tests sandboxes that are made ahead, on Docker.
package warm_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockernetwork "github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors/pool"
	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/network"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

func none() *agboxv1.NetworkSpec { return &agboxv1.NetworkSpec{Mode: network.ModeNone} }

// stage is a daemon that keeps sandboxes ready.
type stage struct {
	*servertest.Daemon
	t        *testing.T
	instance string
	own      *client.Client // to look when the daemon has ended
}

// start has so many ready of the spec, when it returns.
func start(t *testing.T, size int, spec *agboxv1.CreateSpec, options ...func(*dockerrt.Config)) *stage {
	t.Helper()
	s := &stage{t: t, own: dockertest.Engine(t)}
	options = append(options, func(c *dockerrt.Config) { s.instance = c.Instance })
	t.Cleanup(s.nothingLeft) // after the daemon's own
	s.Daemon = servertest.Start(t, options...)
	if spec.Image == "" {
		spec.Image = s.Image
	}
	s.Stop()
	s.Actors.Pool = pool.Config{Warm: []pool.Kind{{Spec: spec, Size: size}}, RecentFor: time.Minute}
	s.StartAgain()
	t.Cleanup(s.drain) // before the daemon's own
	s.await(size)
	return s
}

// patience ends what hangs.
const patience = 4 * time.Minute

// until returns once done does so; it fails the test with what done tells last.
func (s *stage) until(done func() (bool, string)) {
	s.t.Helper()
	limit := time.Now().Add(patience)
	for {
		ended, found := done()
		if ended {
			return
		}
		if time.Now().After(limit) {
			s.t.Fatalf("not within %s: %s", patience, found)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// state is of the only class, and why creates took none.
func (s *stage) state() (class *agboxv1.PoolClass, text string) {
	s.t.Helper()
	info, err := s.Info(context.Background(), &agboxv1.InfoRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	if class = (&agboxv1.PoolClass{}); len(info.Pool) == 1 {
		class = info.Pool[0]
	}
	return class, fmt.Sprintf("pool %v, misses %v", info.Pool, info.PoolMisses)
}

// await returns once so many are ready and none is being made.
func (s *stage) await(size int) {
	s.t.Helper()
	s.until(func() (bool, string) {
		class, text := s.state()
		return int(class.Ready) == size && class.Making == 0, text
	})
}

// take creates until one took what was ready: while others change images of the same engine it may not be known what a name means.
func (s *stage) take(spec *agboxv1.CreateSpec) (id string) {
	s.t.Helper()
	s.until(func() (bool, string) {
		s.await(1)
		before, _ := s.state()
		id = s.Create(proto.CloneOf(spec))
		after, text := s.state()
		if after.Hits > before.Hits {
			return true, ""
		}
		s.t.Log("a create took none: ", text)
		s.Delete(id)
		return false, text
	})
	return id
}

// drain has a daemon that keeps none remove what is ready.
func (s *stage) drain() {
	if s.t.Failed() {
		return
	}
	s.Actors.Pool = pool.Config{}
	s.Restart()
	s.settled(0)
}

// settled returns the places that have containers once there are so many.
func (s *stage) settled(n int) (places []string) {
	s.t.Helper()
	s.until(func() (bool, string) {
		places = s.places()
		return len(places) == n, fmt.Sprintf("%d places, there are %v", n, places)
	})
	return places
}

// places are the places that have containers, in order.
func (s *stage) places() (places []string) {
	s.t.Helper()
	list, err := s.own.ContainerList(context.Background(), container.ListOptions{All: true, Filters: s.mine()})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range list {
		places = append(places, c.Labels[engine.LabelSandbox])
	}
	slices.Sort(places)
	return places
}

func (s *stage) mine() filters.Args {
	return filters.NewArgs(filters.Arg("label", engine.LabelInstance+"="+s.instance))
}

// nothingLeft is for after the daemon's end.
func (s *stage) nothingLeft() {
	if left := s.places(); len(left) > 0 {
		s.t.Errorf("containers of %v are left", left)
	}
	networks, err := s.own.NetworkList(context.Background(), dockernetwork.ListOptions{Filters: s.mine()})
	if err != nil || len(networks) > 0 {
		s.t.Errorf("networks are left: %v, %v", networks, err)
	}
}

// look is what a command sees of the sandbox that it runs in.
const look = `id; pwd; env | sort; echo mounts; while read a b rest; do echo "$b"; done < /proc/mounts
echo proc; for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || cat $p/comm 2>/dev/null; done
grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid|Gid|Groups)' /proc/self/status; ulimit -a
cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null
echo net; ls /sys/class/net; wc -l < /proc/net/route; stat -c '%A %u %g %n' / /workspace /tmp /var/log/agents-sandbox /.agbox /.agbox/run /.agbox/run/s /.agbox/init
cat /etc/resolv.conf; grep -v "$(hostname)" /etc/hosts; touch /workspace/mine && echo writable`

// seen is what look shows, without what differs between any two sandboxes.
func (s *stage) seen(id string) string {
	s.t.Helper()
	exec := s.Begin(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: "look-" + id, Command: []string{"sh", "-c", look}})
	if end := s.ExecEnd(id, exec.ExecId); end.ExitCode != 0 {
		s.t.Fatalf("%v: %s", end, s.Read(exec.StderrLogPath))
	}
	text := s.Read(exec.StdoutLogPath)
	return regexp.MustCompile(`HOSTNAME=.*|look-[-a-z0-9]*|total [0-9]+`).ReplaceAllString(text, "…")
}

// TestWarmIsCold: what a command can see of a sandbox that was made ahead is what it sees of one that was made for it: environment,
// user, directory, mounts, processes, limits, network; also after both were stopped and resumed.
func TestWarmIsCold(t *testing.T) {
	t.Parallel()
	s := start(t, 1, &agboxv1.CreateSpec{MemoryLimit: 64 << 20, PidsLimit: 99})
	spec := func(pool string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{MemoryLimit: 64 << 20, PidsLimit: 99, Pool: pool, Image: s.Image, User: "1234:567", WorkingDir: "/made/here",
			Envs: map[string]string{"PATH": "/bin:/usr/bin:/own", "A": "1", "HOST_NAME": "x=y"}, Labels: map[string]string{"team": "a"}}
	}
	warm := s.take(spec(""))
	cold := s.Create(spec(pool.Never))
	a, b := strings.Split(s.seen(warm), "\n"), strings.Split(s.seen(cold), "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Errorf("the one made ahead shows\n%s\nand the other\n%s", strings.Join(a[min(i, len(a)):], "\n"), strings.Join(b[min(i, len(b)):], "\n"))
			break
		}
	}
	if _, err := s.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: warm}); err != nil {
		t.Fatal(err)
	}
	stopped := s.Await(warm, agboxv1.EventType_SANDBOX_STOPPED)
	if _, err := s.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: warm}); err != nil {
		t.Fatal(err)
	}
	s.AwaitMatch(warm, stopped[len(stopped)-1].Sequence, func(e *agboxv1.SandboxEvent) bool {
		if e.EventType == agboxv1.EventType_SANDBOX_FAILED {
			t.Fatalf("resume: %v", e)
		}
		return e.EventType == agboxv1.EventType_SANDBOX_READY
	})
	if end, out, _ := s.Exec(warm, "sh", "-c", "echo $A $PWD $(id -u)"); end.ExitCode != 0 || out != "1 /made/here 1234\n" {
		t.Errorf("after a resume: %v %q", end, out)
	}
	s.Delete(warm)
	s.Delete(cold)
}

// TestWarmWithoutEngine: a create that takes one is READY, and a command runs in it, while the engine answers nothing.
func TestWarmWithoutEngine(t *testing.T) {
	t.Parallel()
	var hangs atomic.Pointer[chan struct{}] // the engine answers again when it is closed
	host, _ := servertest.Proxied(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if free := hangs.Load(); free != nil {
			select {
			case <-*free:
			case <-r.Context().Done():
				return true
			}
		}
		return false
	})
	s := start(t, 1, &agboxv1.CreateSpec{Network: none()}, func(c *dockerrt.Config) { c.Host = host })
	s.until(func() (bool, string) {
		s.await(1)
		before, _ := s.state()
		free := make(chan struct{})
		hangs.Store(&free)
		// A create that takes none waits for the engine, which goes on then.
		answers := time.AfterFunc(20*time.Second, func() { close(free) })
		created, err := s.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{
			CreateSpec: &agboxv1.CreateSpec{Image: s.Image, Network: none(), Envs: map[string]string{"A": "mine"}}})
		if err != nil {
			t.Fatal(err)
		}
		id := created.Sandbox.SandboxId
		s.Await(id, agboxv1.EventType_SANDBOX_READY)
		end, out, _ := s.Exec(id, "sh", "-c", "echo $A")
		if end.ExitCode != 0 || out != "mine\n" {
			t.Errorf("%v %q", end, out)
		}
		alone := answers.Stop()
		hangs.Store(nil)
		if alone {
			close(free)
		}
		after, text := s.state()
		s.Delete(id)
		return alone && after.Hits > before.Hits, text
	})
}

// TestWarmFiles: files are there, and the sandbox's own command runs, when one that took a ready one is READY.
func TestWarmFiles(t *testing.T) {
	t.Parallel()
	s := start(t, 1, &agboxv1.CreateSpec{Network: none()})
	dir := t.TempDir()
	servertest.WriteTree(t, dir, map[string]string{"file": "content\n"})
	id := s.take(&agboxv1.CreateSpec{Network: none(), Copies: []*agboxv1.CopySpec{{Source: path.Join(dir, "file"), Target: "/workspace/file"}},
		Command: []string{"sh", "-c", "cat file > told; exec sleep 300"}})
	if end, out, stderr := s.Exec(id, "sh", "-c", "until [ -s told ]; do :; done; cat told"); end.ExitCode != 0 || out != "content\n" {
		t.Errorf("%v %q %s", end, out, stderr)
	}
	s.Delete(id)
	// A file without an owner is the spec's user's.
	id = s.take(&agboxv1.CreateSpec{Network: none(), User: "1234:567"})
	file := servertest.Archive(t, servertest.File("mine", "mine\n", 0o600))
	if _, err := s.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: "/workspace"}, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if end, out, _ := s.Exec(id, "stat", "-c", "%u:%g", "mine"); end.ExitCode != 0 || out != "1234:567\n" {
		t.Errorf("a file that was uploaded is of %s: %v", out, end)
	}
	s.Delete(id)
}

// TestWarmAdopted: a daemon that comes back takes over what an earlier one has left ready, and hands out each once.
func TestWarmAdopted(t *testing.T) {
	t.Parallel()
	s := start(t, 1, &agboxv1.CreateSpec{Network: none()})
	first := s.take(&agboxv1.CreateSpec{Network: none(), Envs: map[string]string{"A": "first"}})
	s.await(1)
	s.settled(2)
	s.Actors.Pool.Keep = true
	s.Restart() // as it was configured before, so that what was ready is gone
	s.await(1)
	s.settled(2)
	s.Restart()
	s.await(1)
	kept := s.settled(2)
	second := s.take(&agboxv1.CreateSpec{Network: none(), Envs: map[string]string{"A": "second"}})
	s.await(1)
	after := s.settled(3)
	for id, want := range map[string]string{first: "first\n", second: "second\n"} {
		if end, out, _ := s.Exec(id, "sh", "-c", "echo $A"); end.ExitCode != 0 || out != want {
			t.Errorf("%v %q", end, out)
		}
	}
	for _, place := range kept {
		if !slices.Contains(after, place) {
			t.Errorf("%s, which was ready, is gone", place)
		}
	}
	s.Delete(first)
	s.Delete(second)
}
