package mounts_test

import (
	"archive/tar"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/servertest"
)

func library(t *testing.T, d *servertest.Daemon) *sdk.Client {
	t.Helper()
	c, err := sdk.New(sdk.WithSocket(d.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// changesOf lists a sandbox's changes, a line for each.
func changesOf(t *testing.T, c *sdk.Client, id string, opts ...sdk.ChangesOption) (text string, all []sdk.Change) {
	t.Helper()
	var lines strings.Builder
	for change, err := range c.Changes(t.Context(), id, opts...) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s %s %s %q", change.Mount.Target, change.Kind, change.Type, change.Path)
		if change.Type != sdk.FileSymlink && change.Kind != sdk.ChangeRemoved {
			fmt.Fprintf(&lines, " %o", change.Mode.Perm())
		}
		if change.Conflict {
			lines.WriteString(" conflict")
		}
		lines.WriteByte('\n')
		all = append(all, change)
	}
	return lines.String(), all
}

// TestChanges: what a sandbox changed is listed, in any state that it is in, and taken over to the host but for conflicts.
func TestChanges(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	c := library(t, d)
	host := t.TempDir()
	servertest.WriteTree(t, host, map[string]string{"kept": "host\n", "gone": "host\n", "moved": "host\n", "run": "host\n", "dir/a": "host\n", "both": "host\n", "other/config": "host\n"})
	other := filepath.Join(host, "other")
	id := d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{
		{Source: host, Target: "/workspace", Mode: "cow"}, {Source: other, Target: "/other", Mode: "cow"},
		{Source: filepath.Join(other, "config"), Target: "/config", Mode: "cow"}, {Source: host, Target: "/read"},
	}})
	if text, _ := changesOf(t, c, id); text != "" {
		t.Errorf("at first there is %s", text)
	}
	asRoot(t, d, id, `echo box >kept; rm gone; mv moved moved-to; chmod 755 run; ln -s kept link; mv dir dir-to; echo box >both; echo box >/config; touch other/config
		awk 'BEGIN { for (i = 0; i < 1500; i++) print i > ("/other/" i) }'; printf x >"$(printf 'a\nb\377')"`)
	servertest.WriteTree(t, host, map[string]string{"both": "man\n", "unrelated": "man\n"})
	const want = `/workspace added file "a\nb\xff" 644
/workspace changed file "both" 644 conflict
/workspace removed directory "dir"
/workspace added directory "dir-to" 755
/workspace added file "dir-to/a" 644
/workspace removed file "gone"
/workspace changed file "kept" 644
/workspace added symlink "link"
/workspace removed file "moved"
/workspace added file "moved-to" 644
/workspace changed file "run" 755
`
	text, all := changesOf(t, c, id, sdk.WithTargets("/workspace"))
	if text != want {
		t.Errorf("the changes are\n%s\nwant\n%s", text, want)
	}
	if _, every := changesOf(t, c, id); len(every) != len(all)+1500+1 || every[len(every)-1].Mount.Target != "/config" || every[len(every)-1].Path != "." {
		t.Errorf("in all mounts there are %d changes", len(every))
	}
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	d.Restart()
	if again, _ := changesOf(t, c, id, sdk.WithTargets("/workspace")); again != want {
		t.Errorf("of a stopped sandbox the changes are\n%s", again)
	}
	stream, err := c.ChangesTar(t.Context(), id, "/config")
	if err != nil {
		t.Fatal(err)
	}
	in := tar.NewReader(stream)
	header, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(in); err != nil || header.Name != "." || string(text) != "box\n" {
		t.Errorf("the tar of a file has %q, %q, %v", header.Name, text, err)
	}
	stream.Close()

	left, err := c.ApplyChanges(t.Context(), id, all)
	if err != nil || len(left) != 1 || left[0].Change.Path != "both" || left[0].Reason != "the host changed it since the sandbox was made" {
		t.Errorf("left %v, %v", left, err)
	}
	if got, _ := changesOf(t, c, id, sdk.WithTargets("/workspace")); got != "/workspace changed file \"both\" 644 conflict\n" {
		t.Errorf("after they were applied there are\n%s", got)
	}
	if got := d.Read(filepath.Join(host, "both")) + d.Read(filepath.Join(host, "kept")); got != "man\nbox\n" {
		t.Errorf("the host has %q", got)
	}
	_, files := changesOf(t, c, id, sdk.WithTargets("/config"))
	if left, err := c.ApplyChanges(t.Context(), id, files); err != nil || len(left) != 0 || d.Read(filepath.Join(other, "config")) != "box\n" {
		t.Errorf("a file: left %v, %v", left, err)
	}

	call := func(id string, targets ...string) error {
		stream, err := d.SandboxChanges(t.Context(), &agboxv1.SandboxChangesRequest{SandboxId: id, Targets: targets})
		if err != nil {
			return err
		}
		defer stream.Close()
		_, err = stream.Recv()
		return err
	}
	servertest.Refused(t, call(id, "/workspace", "/read"), codes.InvalidArgument, "MOUNT_NOT_COPY_ON_WRITE", "targets[1]", `"/read" is not the target of a copy-on-write mount; choose from /workspace, /other, /config`)
	servertest.Refused(t, call("no-such-sandbox"), codes.NotFound, "SANDBOX_NOT_FOUND", "", `no-such-sandbox`)
	d.Delete(id)
	servertest.Refused(t, call(id), codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "", "has no changes")
}
