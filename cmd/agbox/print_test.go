package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// TestTerminalIsLeftAlone: whatever a sandbox calls its commands and says of their failures does nothing to the terminal of
// who looks, and the output of commands comes as it is.
func TestTerminalIsLeftAlone(t *testing.T) {
	d, socket := sdktest.Start(t)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Dir(filepath.Dir(socket)))
	c, err := raw.Dial(raw.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const evil = "\x1b]0;owned\a\u009b2J\u202e\r"
	if _, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "box-1", CreateSpec: &agboxv1.CreateSpec{
		Image: "image", Labels: map[string]string{"k": evil}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: "box-1"}); err != nil {
		t.Fatal(err)
	}
	for id, command := range map[string][]string{"exec-1": {"echo", evil}, "exec-2": {"/no/such" + evil}} {
		if _, err := c.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: "box-1", ExecId: id, Command: command}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.WaitExec(t.Context(), &agboxv1.WaitExecRequest{ExecId: id}); err != nil {
			t.Fatal(err)
		}
	}
	d.OnStep(func(context.Context, string) error { return errors.New("it said\n" + evil) })
	if _, err := c.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: "box-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: "box-1"}); err != nil {
		t.Fatal(err)
	}
	d.OnCall(func(rpc string, _ proto.Message) error {
		if rpc != "GetStats" {
			return nil
		}
		return sdktest.Refusal(codes.Internal, "INTERNAL", "it said\n"+evil)
	})
	for line, want := range map[string]string{
		"sandbox list":               `k=\x1b]0;owned\x07\u009b2J\u202e\r`,
		"sandbox get box-1":          `it said\n\x1b]0;owned`,
		"sandbox execs box-1":        `echo \x1b]0;owned`,
		"sandbox events box-1":       `it said\n\x1b]0;owned`,
		"sandbox stats box-1":        "it said\nagbox: \\x1b]0;owned",
		"sandbox exec box-1 -- true": "",
		"sandbox resume box-1":       "",
		"sandbox logs box-1":         "create box-1\n",
	} {
		var out bytes.Buffer
		run(strings.Fields(line), stdio{strings.NewReader(""), &out, &out})
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s prints %q, without %q", line, out.String(), want)
		}
		if at := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) }); at >= 0 {
			t.Errorf("%s prints %q", line, out.String())
		}
	}
	var out bytes.Buffer
	if run([]string{"sandbox", "logs", "exec-1"}, stdio{strings.NewReader(""), &out, &out}); out.String() != evil+"\n" {
		t.Errorf("the output of a command is %q", out.String())
	}
}

// TestFileEvents: names of files do nothing to a terminal either.
func TestFileEvents(t *testing.T) {
	got := fileEventText(&agboxv1.FileEvent{Kind: "renamed", Path: "/w/new", OldPath: "/w/o\nld", Directory: true})
	if want := `renamed     /w/new/  from "/w/o\nld"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestLines: characters that come in two pieces are whole again.
func TestLines(t *testing.T) {
	const words = "é漢🙂\x1b\n\xff!"
	for cut := range len(words) {
		var out strings.Builder
		l := &lines{to: &out}
		for _, part := range []string{words[:cut], words[cut:]} {
			if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
				t.Error(n, err)
			}
		}
		if got := out.String(); got != "é漢🙂\\x1b\n\\xff!" {
			t.Errorf("cut at %d they are %q", cut, got)
		}
	}
}

// TestQueuedText: a person who follows a create sees how far it stands in the line.
func TestQueuedText(t *testing.T) {
	t.Parallel()
	event := &agboxv1.SandboxEvent{EventType: agboxv1.EventType_SANDBOX_PREPARING, Details: &agboxv1.SandboxEvent_SandboxPhase{
		SandboxPhase: &agboxv1.SandboxPhaseDetails{Phase: "queued", QueuedBefore: 7}}}
	if got := eventText(event); got != "queued  7 before it  " {
		t.Errorf("the event reads %q", got)
	}
}
