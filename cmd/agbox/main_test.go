package main

import (
	"archive/tar"
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"agbox": main})
}

// TestScripts plays whole sessions of the command line against a daemon without Docker, whose execs run on this machine.
// "daemon down" and "daemon up" restart it; "daemon await RPC SANDBOX" returns once it was called;
// "daemon changes DIR" puts a stub in its place, whose sandboxes have changed DIR, at /workspace, in their own way. "sees FILE"
// compares what was printed last with the file; every time is 2026-01-02 03:04:05, and every pid of a command 7.
func TestScripts(t *testing.T) {
	playScripts(t, func(_ testing.TB, socket string, setenv func(key, value string)) {
		setenv("XDG_RUNTIME_DIR", filepath.Dir(filepath.Dir(socket)))
	})
}

// reach has agbox find the daemon on a socket, by its environment.
type reach func(t testing.TB, socket string, setenv func(key, value string))

func playScripts(t *testing.T, reach reach) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			d := sdktest.New(env.WorkDir)
			d.Findings = []*agboxv1.Finding{{Check: "disk", Level: agboxv1.FindingLevel_FINDING_LEVEL_WARNING, Summary: "nearly full", Remedy: "delete files"}}
			env.Defer(d.Close)
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each agbox of a race build ends a second late
			calls := make(chan string, 1000)
			d.OnCall(func(rpc string, request proto.Message) error {
				if of, ok := request.(interface{ GetSandboxId() string }); ok {
					calls <- rpc + " " + of.GetSandboxId()
				}
				return nil
			})
			env.Values["daemon"], env.Values["calls"], env.Values["test"], env.Values["reach"] = d, calls, env.T(), reach
			socket := filepath.Join(env.WorkDir, "run", "agbox", "agboxd.sock")
			reach(env.T().(testing.TB), socket, env.Setenv)
			return d.Serve(socket)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"daemon": daemon, "sees": sees},
	})
}

func daemon(ts *testscript.TestScript, neg bool, args []string) {
	d := ts.Value("daemon").(*sdktest.Daemon)
	switch {
	case len(args) == 1 && args[0] == "down":
		d.Shutdown()
	case len(args) == 1 && args[0] == "up":
		ts.Check(d.Serve(filepath.Join(ts.Getenv("WORK"), "run", "agbox", "agboxd.sock")))
	case len(args) >= 2 && args[0] == "await":
		for call := range ts.Value("calls").(chan string) {
			if call == strings.Join(args[1:], " ") {
				return
			}
		}
	case len(args) == 2 && args[0] == "changes":
		t := ts.Value("test").(testing.TB)
		_, socket := sdktest.Stub(t, changed(ts, ts.MkAbs(args[1])))
		ts.Value("reach").(reach)(t, socket, ts.Setenv)
	default:
		ts.Fatalf("usage: daemon down|up|await RPC SANDBOX|changes DIR")
	}
}

var timeDigits = regexp.MustCompile(`20\d\d-\d\d-\d\d([ T])\d\d:\d\d:\d\d(\.\d{3}\b|\.\d+Z)?`)

var pidDigits = regexp.MustCompile(`"pid":[1-9]\d*`)

func sees(ts *testscript.TestScript, neg bool, args []string) {
	got := timeDigits.ReplaceAllStringFunc(ts.ReadFile("stdout"), func(at string) string {
		if strings.HasSuffix(at, "Z") {
			return "2026-01-02T03:04:05Z"
		}
		return "2026-01-02 03:04:05" + strings.Repeat(".000", len(at)/23)
	})
	got = pidDigits.ReplaceAllString(got, `"pid":7`)
	got = strings.ReplaceAll(got, ts.Getenv("WORK"), "$WORK")
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("it printed\n%s\nand not\n%s", got, want)
	}
}

// changes is a daemon whose every sandbox has changed the same.
type changes struct {
	agboxv1.UnimplementedSandboxServiceServer
	mounts  []*agboxv1.ChangedMount
	changes []*agboxv1.Change // of the first
	tar     []byte
}

func (c *changes) SandboxChanges(req *agboxv1.SandboxChangesRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxChangesResponse]) error {
	for i, mount := range c.mounts {
		if len(req.Targets) > 0 && !slices.Contains(req.Targets, mount.Target) {
			continue
		}
		response := &agboxv1.SandboxChangesResponse{Mount: mount}
		if i == 0 {
			response.Changes = c.changes
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes) DownloadChanges(_ *agboxv1.DownloadChangesRequest, stream grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]) error {
	return stream.Send(&agboxv1.DownloadFilesChunk{Data: c.tar})
}

// changed is one change of each sort.
func changed(ts *testscript.TestScript, source string) *changes {
	epoch := timestamppb.New(time.Unix(0, 0))
	c := &changes{mounts: []*agboxv1.ChangedMount{
		{Target: "/workspace", Source: source, ListedAt: timestamppb.New(time.Now().Add(time.Hour))}, {Target: "/home/agbox/.claude", Source: "/none"}},
		changes: []*agboxv1.Change{
			{Kind: "added", Type: "file", Path: ".git/hooks/pre-commit", SizeBytes: 3, Mode: 0o4755, ModifiedAt: epoch},
			{Kind: "changed", Type: "file", Path: "both", SizeBytes: 3, Mode: 0o644, ModifiedAt: epoch, Conflict: true},
			{Kind: "added", Type: "fifo", Path: "fifo", Mode: 0o644, ModifiedAt: epoch, Problem: "it is a fifo"},
			{Kind: "removed", Type: "file", Path: "gone", SizeBytes: 5, Mode: 0o644, ModifiedAt: epoch},
			{Kind: "changed", Type: "symlink", OldType: "file", Path: "a\n\uFFFD", PathBytes: []byte("a\n\xff"), SizeBytes: 4, Mode: 0o777, ModifiedAt: epoch, LinkTarget: "gone"},
		}}
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, name := range []string{".git/hooks/pre-commit", "both"} {
		ts.Check(out.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: 3}))
		_, err := out.Write([]byte("box"))
		ts.Check(err)
	}
	ts.Check(out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "a\n\xff", Linkname: "gone", Format: tar.FormatPAX}))
	ts.Check(out.Close())
	c.tar = b.Bytes()
	return c
}
