package pid1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

func (b *box) boot() link.BootStatus {
	b.Helper()
	stdout := b.primaryFile("stdout")
	defer stdout.Close()
	return b.bootTo(stdout)
}

func (b *box) bootTo(stdout *os.File) link.BootStatus {
	b.Helper()
	stderr, record := b.primaryFile("stderr"), b.primaryFile("record")
	defer stderr.Close()
	defer record.Close()
	status, err := b.link.Boot(b.context(), nil, stdout, stderr, record)
	b.check(err)
	return status
}

func (b *box) primaryFile(kind string) *os.File {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.logs, protocol.CommandID+"."+kind), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	b.check(err)
	return f
}

func TestBoot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string // the entrypoint; "" for none
		want   link.BootStatus
		stdout string
		stays  []string // what lives on
	}{
		"none":              {"", link.BootStatus{State: protocol.BootNone}, "", nil},
		"hands over":        {`#!/bin/sh` + "\n" + `echo prepared as $(id -u) in $PWD; touch /tmp/done; exec "$@"`, link.BootStatus{State: protocol.BootHandedOver}, "prepared as 0 in /workspace\n", []string{"init"}},
		"runs it as child":  {`#!/bin/sh` + "\n" + `"$@"; echo after`, link.BootStatus{State: protocol.BootHandedOver}, "", []string{"entrypoint", "init"}},
		"drops everything":  {`#!/bin/sh` + "\n" + `exec 3>&- 2>&- 1>&- 0<&-; exec env -i /bin/busybox su -s /bin/sh agbox -c 'exec "$0" "$@"' "$@"`, link.BootStatus{State: protocol.BootHandedOver}, "", []string{"init"}},
		"passes a command":  {`#!/bin/sh` + "\n" + `exec "$@" -- sh -c 'echo mine; exit 3'`, link.BootStatus{State: protocol.BootHandedOver}, "", nil},
		"exits":             {`#!/bin/sh` + "\n" + `echo no; exit 4`, link.BootStatus{State: protocol.BootExited, ExitCode: 4}, "no\n", nil},
		"dies":              {`#!/bin/sh` + "\n" + `kill -KILL $$`, link.BootStatus{State: protocol.BootExited, ExitCode: 137, Signal: 9}, "", nil},
		"cannot be started": {"#!/bin/nothing\n", link.BootStatus{State: protocol.BootExited, ExitCode: 126}, "", nil},
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
				t.Fatalf("%+v, stderr %q", got, b.file(protocol.CommandID, "stderr"))
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
			if got := b.file(protocol.CommandID, "stdout"); tt.stdout != "" && got != tt.stdout { // all is written by the end of init
				t.Fatalf("stdout %q", got)
			}
		})
	}
}

func TestBootSaysWhatWasWrong(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--", "/docker-entrypoint.sh")
	if got := b.boot(); got != (link.BootStatus{State: protocol.BootExited, ExitCode: 127}) {
		t.Fatalf("%+v", got)
	}
	if said := b.file(protocol.CommandID, "stderr"); !strings.Contains(said, `"/docker-entrypoint.sh" does not exist`) {
		t.Fatalf("%q", said)
	}
}

// The image's user runs the entrypoint, agbox runs the commands.
func TestBootAsImageUser(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("entrypoint", "#!/bin/sh\nid -u; exec \"$@\"", 0o755)
	b.start("--image-user=other", "--", "/entrypoint")
	b.boot()
	b.expect(b.sh("id -u"), 0, "1000\n")
	b.term()
	b.ended()
	if got := b.file(protocol.CommandID, "stdout"); got != "1001\n" {
		t.Fatalf("%q", got)
	}
}

// A daemon that comes back in the middle of the entrypoint's work waits for its end.
func TestBootAcrossReconnect(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("entrypoint", "#!/bin/sh\nbusybox mkfifo -m 666 /tmp/gate; echo at the gate; cat /tmp/gate; exec \"$@\"", 0o755)
	b.start("--", "/entrypoint")
	stdout, w, err := os.Pipe()
	b.check(err)
	defer stdout.Close()
	defer w.Close()
	guest, lost := b.link, make(chan error)
	go func() {
		_, err := guest.Boot(t.Context(), nil, w, w, nil)
		lost <- err
	}()
	if _, err := stdout.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	b.relink()
	if err := <-lost; err != link.ErrClosed {
		t.Fatal(err)
	}
	b.expect(b.sh("echo go > /tmp/gate"), 0, "")
	if got := b.boot(); got.State != protocol.BootHandedOver {
		t.Fatalf("%+v", got)
	}
}
