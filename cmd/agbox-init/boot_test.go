package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt/initlink"
	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

func (b *box) boot() initlink.BootStatus {
	b.Helper()
	stdout := b.primaryFile("stdout")
	defer stdout.Close()
	return b.bootTo(stdout)
}

func (b *box) bootTo(stdout *os.File) initlink.BootStatus {
	b.Helper()
	stderr, record := b.primaryFile("stderr"), b.primaryFile("record")
	defer stderr.Close()
	defer record.Close()
	status, err := b.link.Boot(b.context(), stdout, stderr, record)
	b.check(err)
	return status
}

func (b *box) primaryFile(kind string) *os.File {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.logs, initproto.CommandID+"."+kind), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	b.check(err)
	return f
}

func TestBoot(t *testing.T) {
	for name, tt := range map[string]struct {
		script string // the entrypoint; "" for none
		want   initlink.BootStatus
		stdout string
		stays  []string // what lives on
	}{
		"none":              {"", initlink.BootStatus{State: initproto.BootNone}, "", nil},
		"hands over":        {`#!/bin/sh` + "\n" + `echo prepared as $(id -u) in $PWD; touch /tmp/done; exec "$@"`, initlink.BootStatus{State: initproto.BootHandedOver}, "prepared as 0 in /workspace\n", []string{"init"}},
		"runs it as child":  {`#!/bin/sh` + "\n" + `"$@"; echo after`, initlink.BootStatus{State: initproto.BootHandedOver}, "", []string{"entrypoint", "init"}},
		"drops everything":  {`#!/bin/sh` + "\n" + `exec 3>&- 2>&- 1>&- 0<&-; exec env -i /bin/busybox su -s /bin/sh agbox -c 'exec "$0" "$@"' "$@"`, initlink.BootStatus{State: initproto.BootHandedOver}, "", []string{"init"}},
		"passes a command":  {`#!/bin/sh` + "\n" + `exec "$@" -- sh -c 'echo mine; exit 3'`, initlink.BootStatus{State: initproto.BootHandedOver}, "", nil},
		"exits":             {`#!/bin/sh` + "\n" + `echo no; exit 4`, initlink.BootStatus{State: initproto.BootExited, ExitCode: 4}, "no\n", nil},
		"dies":              {`#!/bin/sh` + "\n" + `kill -KILL $$`, initlink.BootStatus{State: initproto.BootExited, ExitCode: 137, Signal: 9}, "", nil},
		"cannot be started": {"#!/bin/nothing\n", initlink.BootStatus{State: initproto.BootExited, ExitCode: 126}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			var args []string
			if tt.script != "" {
				b.write("entrypoint", tt.script, 0o755)
				args = []string{"--", "/entrypoint"}
			}
			b.start(args...)
			if got := b.boot(); got != tt.want {
				t.Fatalf("%+v, stderr %q", got, b.file(initproto.CommandID, "stderr"))
			}
			if got := b.boot(); got != tt.want {
				t.Fatalf("second time: %+v", got)
			}
			b.expect(b.run("true"), 0, "") // it harms nothing
			if tt.stays != nil {
				if got := strings.Join(b.processes(), " "); got != strings.Join(tt.stays, " ") {
					t.Fatalf("processes: %s", got)
				}
			}
			b.term() // the ten minutes of grace are not needed
			if code := b.ended(); code != 0 {
				t.Fatal(code)
			}
			if got := b.file(initproto.CommandID, "stdout"); tt.stdout != "" && got != tt.stdout { // all is written by the end of init
				t.Fatalf("stdout %q", got)
			}
		})
	}
}

func TestBootSaysWhatWasWrong(t *testing.T) {
	b := newBox(t).start("--", "/docker-entrypoint.sh")
	if got := b.boot(); got != (initlink.BootStatus{State: initproto.BootExited, ExitCode: 127}) {
		t.Fatalf("%+v", got)
	}
	if said := b.file(initproto.CommandID, "stderr"); !strings.Contains(said, `"/docker-entrypoint.sh" does not exist`) {
		t.Fatalf("%q", said)
	}
}

// The image's user runs the entrypoint, agbox runs the commands.
func TestBootAsImageUser(t *testing.T) {
	b := newBox(t)
	b.write("entrypoint", "#!/bin/sh\nid -u; exec \"$@\"", 0o755)
	b.start("--image-user=other", "--", "/entrypoint")
	b.boot()
	b.expect(b.sh("id -u"), 0, "1000\n")
	b.term()
	b.ended()
	if got := b.file(initproto.CommandID, "stdout"); got != "1001\n" {
		t.Fatalf("%q", got)
	}
}

// A daemon that comes back in the middle of the entrypoint's work waits for its end.
func TestBootAcrossReconnect(t *testing.T) {
	b := newBox(t)
	b.write("entrypoint", "#!/bin/sh\nbusybox mkfifo -m 666 /tmp/gate; echo at the gate; cat /tmp/gate; exec \"$@\"", 0o755)
	b.start("--", "/entrypoint")
	stdout, w, err := os.Pipe()
	b.check(err)
	defer stdout.Close()
	defer w.Close()
	link, lost := b.link, make(chan error)
	go func() {
		_, err := link.Boot(t.Context(), w, w, nil)
		lost <- err
	}()
	if _, err := stdout.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	b.relink()
	if err := <-lost; err != initlink.ErrClosed {
		t.Fatal(err)
	}
	b.expect(b.sh("echo go > /tmp/gate"), 0, "")
	if got := b.boot(); got.State != initproto.BootHandedOver {
		t.Fatalf("%+v", got)
	}
}
