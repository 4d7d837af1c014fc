package relay

import (
	"archive/tar"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// TestGather: what a stopped sandbox holds more goes to the files that there are, and to no others, whatever it names.
func TestGather(t *testing.T) {
	root := t.TempDir()
	file := func(id, kind string) string {
		if kind == protocol.KindInput || kind == "rest" {
			return ""
		}
		return filepath.Join(root, id+"."+kind)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	record := func(id string) string { return string(protocol.EncodeRecord(&protocol.Result{ID: id, ExitCode: 4})) }
	held := map[string]string{
		file("e", "stdout"): "012", file("e", "stderr"): "longer", outside: "", file("e", "index"): "\x01",
		file("e", "record"): "torn", file("f", "record"): "", file("done", "record"): record("done"),
	}
	for name, text := range held {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := file("link", "stdout")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	room := uint64(5)
	gather := func(name, text string, kind byte) error {
		var archive bytes.Buffer
		out := tar.NewWriter(&archive)
		if err := out.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Linkname: outside, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		out.Write([]byte(text))
		return Gather(tar.NewReader(&archive), file, func(*os.File) uint64 { return room })
	}
	for name, text := range map[string]string{
		"logs/e.stdout.log": "01234", "logs/e.stderr.log": "long", "state/e.record": record("e"), "state/f.record": record("e"),
		"state/done.record": "garbage", "logs/new.stdout.log": "x", "state/e.index": "\x01index", "../../outside": "x", "logs/..": "x", "e.input": "x", "e.rest": "x",
	} {
		if err := gather(name, text, tar.TypeReg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := gather("logs/link.stdout.log", "x", tar.TypeReg); err == nil {
		t.Error("a link was followed")
	}
	if err := gather("logs/e.stdout.log", "", tar.TypeSymlink); err != nil {
		t.Error(err)
	}
	room = 0
	if err := gather("logs/e.stdout.log", "0123456789", tar.TypeReg); err != nil {
		t.Error(err)
	}
	held[file("e", "stdout")], held[file("e", "record")] = "01234", record("e")
	held[file("e", "index")] = "\x01index"
	for name, want := range held {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	if entries, _ := os.ReadDir(root); len(entries) != 7 {
		t.Errorf("there are %v", entries)
	}
}

// TestForgedOutput: a sandbox's root may speak in place of the relay. Nothing but the next bytes is taken.
func TestForgedOutput(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	b := &Relay{Sandbox: Sandbox{Room: func(*os.File) uint64 { return math.MaxUint64 }}}
	e := b.newExec("e")
	e.logs[0].file = file
	defer e.close()
	if err := e.take(&protocol.Data{Bytes: []byte("abc")}); err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string]*protocol.Data{
		"again": {Bytes: []byte("abc")}, "far on": {Offset: 1 << 62, Bytes: []byte("x")}, "no such file": {Stream: protocol.StreamStderr},
		"no such stream": {Stream: -1}, "no index": {Stream: protocol.StreamIndex}, "no pipe": {Stream: protocol.StreamPipe},
	} {
		if err := e.take(forged); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := (*exec)(nil).take(&protocol.Data{Bytes: []byte("x")}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file.Name()); string(text) != "abc" {
		t.Errorf("it holds %q, %v", text, err)
	}
}

// TestOutputLeavesHeadroom also where agbox-init has the disk of another machine before it, or another one speaks in its place.
func TestOutputLeavesHeadroom(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	b := &Relay{Sandbox: Sandbox{Room: func(*os.File) uint64 { return 0 }}}
	e := b.newExec("e")
	e.logs[0].file = file
	defer e.close()
	const chunk = 300 << 10
	for i := range 5 {
		if err := e.take(&protocol.Data{Offset: uint64(i * chunk), Bytes: make([]byte, chunk)}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := file.Stat(); err != nil || info.Size() != 3*chunk || e.logs[0].lost != 2*chunk {
		t.Errorf("the file has %d bytes, %d are lost, %v", info.Size(), e.logs[0].lost, err)
	}
}

// TestPipeOutlivesExec: what came out of a pipe is not dropped because its command is over and done with.
func TestPipeOutlivesExec(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	e := &exec{id: "e", pipe: newPipe(write)}
	defer e.close()
	p := &session{Relay: &Relay{execs: map[string]*exec{"e": e}}}
	for _, m := range []protocol.Message{
		&protocol.Closed{ID: "e"}, &protocol.Data{ID: "e", Stream: protocol.StreamPipe, Bytes: []byte("last")},
		&protocol.Data{ID: "e", Stream: protocol.StreamPipe},
	} {
		if err := p.hear(m); err != nil {
			t.Fatal(err)
		}
	}
	if len(e.pipe.queue) != 2 || p.find("e") != nil {
		t.Errorf("%d chunks came, and the exec is %v", len(e.pipe.queue), p.find("e"))
	}
}
