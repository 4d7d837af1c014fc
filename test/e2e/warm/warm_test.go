// Package warm_test tests sandboxes that are made ahead, on Docker.
package warm_test

import (
	"context"
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
	ready    chan int
	own      *client.Client // to look when the daemon has ended
}

// start has so many ready of the spec, when it returns.
func start(t *testing.T, size int, spec *agboxv1.CreateSpec, options ...func(*dockerrt.Config)) *stage {
	t.Helper()
	s := &stage{t: t, ready: make(chan int, 64), own: dockertest.Engine(t)}
	options = append(options, func(c *dockerrt.Config) { s.instance = c.Instance })
	t.Cleanup(s.nothingLeft) // after the daemon's own
	s.Daemon = servertest.Start(t, options...)
	if spec.Image == "" {
		spec.Image = s.Image
	}
	s.Stop()
	s.Actors.Pool = pool.Config{Warm: []pool.Kind{{Spec: spec, Size: size}}, RecentFor: time.Minute, Changed: func(ready int) {
		select {
		case s.ready <- ready:
		default:
		}
	}}
	s.StartAgain()
	s.await(size)
	return s
}

// await returns once so many are ready.
func (s *stage) await(size int) {
	s.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case ready := <-s.ready:
			if ready == size {
				return
			}
		case <-limit:
			info, err := s.Info(context.Background(), &agboxv1.InfoRequest{})
			s.t.Fatalf("not %d are ready: %v, %v", size, info.GetPool(), err)
		}
	}
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

// took fails the test unless so many creates took one.
func (s *stage) took(hits uint64) {
	s.t.Helper()
	info, err := s.Info(s.t.Context(), &agboxv1.InfoRequest{})
	if err != nil || len(info.Pool) != 1 || info.Pool[0].Hits != hits {
		s.t.Fatalf("not %d took one: %v, misses %v, %v", hits, info.GetPool(), info.GetPoolMisses(), err)
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
	warm := s.Create(spec(""))
	s.took(1)
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
	var hangs atomic.Bool
	free := make(chan struct{})
	host, _ := servertest.Proxied(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if hangs.Load() {
			select {
			case <-free:
			case <-r.Context().Done():
				return true
			}
		}
		return false
	})
	s := start(t, 1, &agboxv1.CreateSpec{Network: none()}, func(c *dockerrt.Config) { c.Host = host })
	hangs.Store(true)
	id := s.Create(&agboxv1.CreateSpec{Network: none(), Envs: map[string]string{"A": "mine"}})
	if end, out, _ := s.Exec(id, "sh", "-c", "echo $A"); end.ExitCode != 0 || out != "mine\n" {
		t.Errorf("%v %q", end, out)
	}
	hangs.Store(false)
	close(free)
	s.Delete(id)
}

// TestWarmFiles: files are there, and the sandbox's own command runs, when one that took a ready one is READY.
func TestWarmFiles(t *testing.T) {
	t.Parallel()
	s := start(t, 1, &agboxv1.CreateSpec{Network: none()})
	dir := t.TempDir()
	servertest.WriteTree(t, dir, map[string]string{"file": "content\n"})
	id := s.Create(&agboxv1.CreateSpec{Network: none(), Copies: []*agboxv1.CopySpec{{Source: path.Join(dir, "file"), Target: "/workspace/file"}},
		Command: []string{"sh", "-c", "cat file > told; exec sleep 300"}})
	s.took(1)
	if end, out, stderr := s.Exec(id, "sh", "-c", "until [ -s told ]; do :; done; cat told"); end.ExitCode != 0 || out != "content\n" {
		t.Errorf("%v %q %s", end, out, stderr)
	}
	s.Delete(id)
}

// TestWarmAdopted: a daemon that comes back takes over what an earlier one has left ready, and hands out each once.
func TestWarmAdopted(t *testing.T) {
	t.Parallel()
	s := start(t, 1, &agboxv1.CreateSpec{Network: none()})
	first := s.Create(&agboxv1.CreateSpec{Network: none(), Envs: map[string]string{"A": "first"}})
	s.await(1)
	before := s.places()
	s.Actors.Pool.Keep = true
	s.Restart() // as it was configured before, so that what was ready is gone
	s.await(1)
	s.Restart()
	s.await(1)
	kept := s.places()
	second := s.Create(&agboxv1.CreateSpec{Network: none(), Envs: map[string]string{"A": "second"}})
	s.took(1)
	s.await(1)
	for id, want := range map[string]string{first: "first\n", second: "second\n"} {
		if end, out, _ := s.Exec(id, "sh", "-c", "echo $A"); end.ExitCode != 0 || out != want {
			t.Errorf("%v %q", end, out)
		}
	}
	if after := s.places(); len(before) != 2 || len(kept) != 2 || len(after) != 3 {
		t.Errorf("there were %v, then %v, then %v", before, kept, after)
	}
	for _, place := range kept {
		if !slices.Contains(s.places(), place) {
			t.Errorf("%s, which was ready, is gone", place)
		}
	}
	s.Delete(first)
	s.Delete(second)
	s.Actors.Pool = pool.Config{}
	s.Restart()
}
