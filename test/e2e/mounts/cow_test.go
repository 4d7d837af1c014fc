package mounts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// asRoot runs a script as root and fails the test unless it ends well.
func asRoot(t *testing.T, d *servertest.Daemon, id, script string) string {
	t.Helper()
	created := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-ec", script}, User: "0"})
	end := d.ExecEnd(id, created.ExecId)
	if end.ExitCode != 0 {
		t.Fatalf("%s: %v: %s", script, end, d.Read(created.StderrLogPath))
	}
	return d.Read(created.StdoutLogPath)
}

// TestCopyOnWrite: what a sandbox writes in a copy-on-write mount stays its own, over stop and resume and a restart of the
// daemon, and goes with it; the source's name is any that a file can have.
func TestCopyOnWrite(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*dockerrt.Config){"socket": func(*dockerrt.Config) {}, "engine": servertest.ByEngine} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCopyOnWrite(t, servertest.Start(t, option))
		})
	}
}

func testCopyOnWrite(t *testing.T, d *servertest.Daemon) {
	host := filepath.Join(t.TempDir(), `a,ro b:c\d"'`)
	servertest.WriteTree(t, host, map[string]string{"kept": "host\n", "gone": "host\n", "dir/file": "host\n", ".config": "login\n"})
	if err := os.Chmod(host, 0o751|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	before := tree(t, host)
	request := func() *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{
			{Source: filepath.Join(host, "dir"), Target: "/read"},
			{Source: host, Target: "/workspace", Mode: "cow"},
			{Source: filepath.Join(host, ".config"), Target: "/config", Mode: "cow"},
		}}
	}
	id, other := d.Create(request()), d.Create(request())
	asRoot(t, d, id, "cat /config kept; echo box >>kept; rm gone; mv dir moved; echo box >/config; touch /read/x && exit 1; stat -c %a . | grep 1751")
	servertest.Upload(t, d, id, "/workspace/up", servertest.Archive(t, servertest.File("sent", "by the client\n", 0o644)))
	const want = "host\nbox\nby the client\nhost\nbox\n"
	look := "cd /workspace; cat kept up/sent moved/file /config; ! ls gone dir 2>/dev/null"
	if got := asRoot(t, d, id, look); got != want {
		t.Errorf("the sandbox sees %q, want %q", got, want)
	}
	if got := asRoot(t, d, other, "cat kept gone dir/file /config; ls"); got != "host\nhost\nhost\nlogin\ndir\ngone\nkept\n" {
		t.Errorf("another sandbox sees %q", got)
	}
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	if got := servertest.Download(t, d, id, "/workspace/kept")["kept"].Content; got != "host\nbox\n" {
		t.Errorf("a file of a stopped sandbox holds %q", got)
	}
	d.Restart()
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	resumed := 0
	d.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool {
		if e.EventType == agboxv1.EventType_SANDBOX_READY {
			resumed++
		}
		return resumed == 2
	})
	if got := asRoot(t, d, id, look); got != want {
		t.Errorf("after stop and resume the sandbox sees %q, want %q", got, want)
	}
	if after := tree(t, host); after != before {
		t.Errorf("the host's files were\n%s\nand are\n%s", before, after)
	}
	for _, sandbox := range []string{id, other} {
		d.Delete(sandbox)
		noLayers(t, d, sandbox)
	}
}

// tree is a listing of all that is below dir.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var content []byte
		switch name, _ := filepath.Rel(dir, path); {
		case info.Mode().IsRegular():
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
			fallthrough
		default:
			link, _ := os.Readlink(path)
			fmt.Fprintf(&text, "%s %s %q %q\n", info.Mode(), name, link, content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func noLayers(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(d.Dir(), "layers", id)); !os.IsNotExist(err) {
		t.Errorf("the layers of sandbox %s are still there: %v", id, err)
	}
}

// TestToolsAreCopyOnWrite: a sandbox reads the host's login and caches, and what it writes beside them is not on the host,
// unless the tool is named with :rw.
func TestToolsAreCopyOnWrite(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	d.Home = t.TempDir()
	servertest.WriteTree(t, d.Home, map[string]string{".claude/.credentials.json": "login\n", ".claude/settings.json": "{}\n", ".claude.json": "state\n",
		".cache/uv/wheels/a": "wheel\n", ".local/share/uv/": ""})
	for _, open := range []string{"", ".claude", ".claude/settings.json", ".claude.json", ".cache/uv", ".cache/uv/wheels", ".local/share/uv"} {
		if err := os.Chmod(filepath.Join(d.Home, open), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	d.Restart()
	before := tree(t, d.Home)
	tools := &agboxv1.CreateSpec{BuiltinTools: []string{"claude", "uv"}}
	for n, id := range []string{d.Create(tools), d.Create(tools)} {
		end, stdout, stderr := d.Exec(id, "sh", "-ec", fmt.Sprintf(`cd /home/agbox; cat .claude/.credentials.json .claude.json .cache/uv/wheels/a
			[ "$(cat .claude/settings.json)" = "{}" ]
			echo '{"hooks": "sandbox %d"}' >.claude/settings.json; mkdir .claude/hooks; echo evil >.claude/hooks/pre; echo %d >.claude.json
			echo new >.cache/uv/wheels/b; rm .cache/uv/wheels/a; echo 3.13 >.local/share/uv/python
			cat .claude/settings.json .claude.json`, n, n))
		if want := fmt.Sprintf("login\nstate\nwheel\n{\"hooks\": \"sandbox %d\"}\n%d\n", n, n); end.ExitCode != 0 || stdout != want {
			t.Errorf("sandbox %d: %v, %q, want %q; %s", n, end, stdout, want, stderr)
		}
	}
	if after := tree(t, d.Home); after != before {
		t.Errorf("the home was\n%s\nand is\n%s", before, after)
	}
	id := d.Create(&agboxv1.CreateSpec{BuiltinTools: []string{"uv:rw"}})
	if end, _, stderr := d.Exec(id, "sh", "-c", "echo new >/home/agbox/.cache/uv/wheels/b"); end.ExitCode != 0 {
		t.Error(stderr)
	}
	if got := d.Read(filepath.Join(d.Home, ".cache/uv/wheels/b")); got != "new\n" {
		t.Errorf("written through: %q", got)
	}
}
