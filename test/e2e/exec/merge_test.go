package exec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/dockerrt"
	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// both is what came by a stream of both outputs.
type both struct {
	outputs [2]bytes.Buffer
	turns   []string // neighbours of one stream are one
	stderr  []bool   // of the turns
	unknown int      // bytes whose time is not known
	last    time.Time
}

func (b *both) take(chunk *agboxv1.ExecLogChunk) error {
	i := 0
	switch chunk.Stream {
	case "stdout":
	case "stderr":
		i = 1
	default:
		return fmt.Errorf("a chunk of stream %q", chunk.Stream)
	}
	if chunk.Offset != uint64(b.outputs[i].Len()) || len(chunk.Data) > 64<<10 {
		return fmt.Errorf("a chunk of %d bytes at %d of %s, where %d is next", len(chunk.Data), chunk.Offset, chunk.Stream, b.outputs[i].Len())
	}
	if len(chunk.Data) == 0 {
		return nil
	}
	if chunk.WrittenAt == nil {
		b.unknown += len(chunk.Data)
	} else if at := chunk.WrittenAt.AsTime(); at.Before(b.last) {
		return fmt.Errorf("a chunk of %v after one of %v", at, b.last)
	} else {
		b.last = at
	}
	b.outputs[i].Write(chunk.Data)
	if n := len(b.turns); n > 0 && b.stderr[n-1] == (i == 1) {
		b.turns[n-1] += string(chunk.Data)
	} else {
		b.turns, b.stderr = append(b.turns, string(chunk.Data)), append(b.stderr, i == 1)
	}
	return nil
}

// next returns the next chunk that is not empty; an error is io.EOF at the end.
func (b *both) next(stream *raw.LogStream) (*agboxv1.ExecLogChunk, error) {
	for {
		chunk, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if err := b.take(chunk); err != nil || len(chunk.Data) > 0 {
			return chunk, err
		}
	}
}

func (b *both) drain(stream *raw.LogStream) error {
	for {
		if _, err := b.next(stream); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func openBoth(t *testing.T, d *servertest.Daemon, req *agboxv1.ReadExecLogRequest) *raw.LogStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req.Stream = "both"
	stream, err := d.ReadExecLog(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func readBoth(t *testing.T, d *servertest.Daemon, execID string, follow bool) *both {
	t.Helper()
	b := &both{}
	// Where to begin is not looked at.
	if err := b.drain(openBoth(t, d, &agboxv1.ReadExecLogRequest{ExecId: execID, Follow: follow, Offset: 3, TailBytes: new(uint64(1))})); err != nil {
		t.Errorf("%s: %v", execID, err)
	}
	return b
}

// turns begins a script of heldBack in which turn waits for a further release each time.
const turns = "turn() { read go <&3; }\n"

func indexOf(exec *agboxv1.CreateExecResponse) string {
	return filepath.Join(filepath.Dir(exec.StdoutLogPath), exec.ExecId+".index")
}

// TestMerge: a follower sees each turn of a command before the next one, and who comes later sees the same.
func TestMerge(t *testing.T) {
	t.Parallel()
	t.Run("socket", func(t *testing.T) { merge(t) })
	t.Run("engine", func(t *testing.T) { merge(t, servertest.ByEngine) })
}

func merge(t *testing.T, options ...func(*dockerrt.Config)) {
	t.Parallel()
	d := servertest.Start(t, options...)
	id := d.Create(&agboxv1.CreateSpec{})
	words := []string{"out1", "err1", "out2", "err2", "out3"}
	script := turns
	for i, word := range words {
		script += fmt.Sprintf("printf %s >&%d; turn\n", word, i%2+1)
	}
	begun := time.Now().Truncate(time.Microsecond)
	exec, release := heldBack(t, d, id, "merge", script)
	stream := openBoth(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true})
	if first, err := stream.Recv(); err != nil || len(first.Data) != 0 {
		t.Fatalf("before the first byte comes %v, %v", first, err)
	}
	release()
	var live both
	for i, word := range words {
		chunk, err := live.next(stream)
		if err != nil || string(chunk.Data) != word || (chunk.Stream == "stderr") != (i%2 == 1) {
			t.Fatalf("instead of %q comes %v, %v", word, chunk, err)
		}
		if at := chunk.WrittenAt.AsTime(); at.Before(begun) || at.After(time.Now()) {
			t.Errorf("%q was written at %v", word, at)
		}
		release()
	}
	if err := live.drain(stream); err != nil || len(live.turns) != len(words) {
		t.Errorf("%v, %q", err, live.turns)
	}
	for _, follow := range []bool{false, true} {
		if late := readBoth(t, d, exec.ExecId, follow); strings.Join(late.turns, " ") != strings.Join(words, " ") || late.last != live.last || late.unknown > 0 {
			t.Errorf("later, follow %v: %q, the last at %v and not %v, %d without a time", follow, late.turns, late.last, live.last, late.unknown)
		}
	}

	// What is damaged costs the order from there on, and nothing else.
	index, err := os.ReadFile(indexOf(exec))
	if err != nil {
		t.Fatal(err)
	}
	three := []byte{protocol.IndexVersion}
	for i := range uint64(3) {
		three = protocol.AppendRun(three, i == 1, 4, 1e15*(1-min(i, 1)))
	}
	const all = "out1out2out3err1err2"
	for name, tt := range map[string]struct {
		index []byte
		want  string
	}{
		"torn":            {index[:len(index)-1], "out1err1out2err2 out3"},
		"short":           {three, "out1err1out2 out3err2"},
		"empty":           {nil, all},
		"another version": {append([]byte{9}, index[1:]...), all},
		"zeros":           {make([]byte, len(index)), all},
		"too much":        {append(index, 1<<1, 1, 100<<1|1, 1), "out1err1out2err2out3"},
	} {
		if err := os.WriteFile(indexOf(exec), tt.index, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, follow := range []bool{false, true} {
			got := readBoth(t, d, exec.ExecId, follow)
			text := strings.Join(got.turns, "")
			if text != strings.ReplaceAll(tt.want, " ", "") {
				t.Errorf("%s, follow %v: %q", name, follow, got.turns)
			}
			if known, _, found := strings.Cut(tt.want, " "); found && got.unknown != len(text)-len(known) {
				t.Errorf("%s: %d bytes have no time", name, got.unknown)
			}
		}
	}
	if err := os.Remove(indexOf(exec)); err != nil {
		t.Fatal(err)
	}
	if got := readBoth(t, d, exec.ExecId, true); strings.Join(got.turns, "") != all || got.unknown != len(all) {
		t.Errorf("without an index: %q, %d bytes without a time", got.turns, got.unknown)
	}
}

// TestMergeWithout: a command whose index nobody writes is followed all the same, and so are one at a terminal, one that
// is cut short, one that writes nothing and one that cannot be started.
func TestMergeWithout(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, release := heldBack(t, d, id, "without", turns+"turn; printf err >&2; turn; printf out; turn")
	release() // it runs, then, and so the file is there
	if err := os.Remove(indexOf(exec)); err != nil {
		t.Fatal(err)
	}
	stream := openBoth(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true})
	var live both
	for _, want := range []string{"err", "out"} {
		release()
		if chunk, err := live.next(stream); err != nil || string(chunk.Data) != want || chunk.WrittenAt != nil {
			t.Fatalf("instead of %q comes %v, %v", want, chunk, err)
		}
	}
	release()
	if err := live.drain(stream); err != nil {
		t.Error(err)
	}

	// From damage on, which whoever follows meets, all comes at the end.
	exec, release = heldBack(t, d, id, "damaged", turns+"printf out1; turn; printf err >&2; printf out2")
	stream = openBoth(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true})
	release()
	live = both{}
	if chunk, err := live.next(stream); err != nil || string(chunk.Data) != "out1" || chunk.WrittenAt == nil {
		t.Fatalf("before the damage comes %v, %v", chunk, err)
	}
	index, err := os.OpenFile(indexOf(exec), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := index.Write(bytes.Repeat([]byte{0xff}, 4*protocol.MaxRun)); err != nil {
		t.Fatal(err)
	}
	index.Close()
	release()
	if err := live.drain(stream); err != nil || strings.Join(live.turns, " ") != "out1out2 err" || live.unknown != len("out2err") {
		t.Errorf("over the damage: %v, %q, %d bytes without a time", err, live.turns, live.unknown)
	}

	for name, tt := range map[string]struct {
		request *agboxv1.CreateExecRequest
		want    string
		untimed int
	}{
		"terminal": {&agboxv1.CreateExecRequest{Command: []string{"sh", "-c", "stty -onlcr; echo a; echo b >&2"}, Tty: &agboxv1.TerminalSize{Rows: 9, Columns: 9}}, "a\nb\n", 4},
		"limit":    {&agboxv1.CreateExecRequest{Command: []string{"sh", "-c", "printf 123456"}, MaxOutputBytes: 4}, "1234", 0},
		"silent":   {&agboxv1.CreateExecRequest{Command: []string{"true"}}, "", 0},
		"failed":   {&agboxv1.CreateExecRequest{Command: []string{"/no/such/command"}}, "", 0},
		"input":    {&agboxv1.CreateExecRequest{Command: []string{"sh", "-c", "echo text"}, Stdin: true}, "text\n", 0},
	} {
		tt.request.SandboxId = id
		exec := d.Begin(tt.request).ExecId
		followed := readBoth(t, d, exec, true)
		if got := readBoth(t, d, exec, false); strings.Join(got.turns, "") != tt.want || strings.Join(followed.turns, "") != tt.want || got.unknown != tt.untimed {
			t.Errorf("%s: %q, followed %q, %d bytes without a time", name, got.turns, followed.turns, got.unknown)
		}
	}
}

// TestMergeMuch: every byte of a busy command comes, once, whoever follows, and with its time.
func TestMergeMuch(t *testing.T) {
	t.Parallel()
	t.Run("socket", func(t *testing.T) { mergeMuch(t) })
	t.Run("engine", func(t *testing.T) { mergeMuch(t, servertest.ByEngine) })
}

func mergeMuch(t *testing.T, options ...func(*dockerrt.Config)) {
	t.Parallel()
	d := servertest.Start(t, options...)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, release := heldBack(t, d, id, "much", `(i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo out $i; done) &
		i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo err $i >&2; done; wait; head -c 3000000 /dev/zero`)
	stream := openBoth(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: true})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	release()
	var live both
	if err := live.drain(stream); err != nil {
		t.Fatal(err)
	}
	d.ExecEnd(id, exec.ExecId)
	late := readBoth(t, d, exec.ExecId, false)
	for i, path := range []string{exec.StdoutLogPath, exec.StderrLogPath} {
		want := d.Read(path)
		if len(want) < 100_000 || live.outputs[i].String() != want || late.outputs[i].String() != want {
			t.Errorf("output %d has %d bytes, followed %d, later %d", i, len(want), live.outputs[i].Len(), late.outputs[i].Len())
		}
	}
	if len(live.turns) < 2 || len(live.turns) != len(late.turns) || live.unknown+late.unknown > 0 {
		t.Errorf("%d and %d turns, %d and %d bytes without a time", len(live.turns), len(late.turns), live.unknown, late.unknown)
	}
	size := len(d.Read(indexOf(exec)))
	t.Logf("%d turns, %d bytes of index for %d", len(live.turns), size, live.outputs[0].Len()+live.outputs[1].Len())
}

// TestMergeOverRestart: the SDK goes on where it was, in order, although the daemon begins at the beginning.
func TestMergeOverRestart(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, release := heldBack(t, d, id, "again", turns+"printf out1; turn; printf err1 >&2; turn; printf out2; turn; printf err2 >&2")
	broken := 0
	client, err := sdk.New(sdk.WithSocket(d.Socket()), sdk.WithBrokenStream(func(error) { broken++ }))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var got []string
	release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for chunk, err := range client.LogChunks(ctx, exec.ExecId, sdk.WithBoth(), sdk.WithFollow()) {
		if err != nil {
			t.Fatal(err)
		}
		if word := string(chunk.Data); chunk.Stderr != strings.HasPrefix(word, "err") || chunk.Offset != 4*uint64(len(got)/2) || chunk.WrittenAt.IsZero() {
			t.Errorf("got %q: %+v", word, chunk)
		}
		if got = append(got, string(chunk.Data)); len(got) == 2 {
			d.Restart()
		}
		if len(got) < 4 {
			release()
		}
	}
	if strings.Join(got, " ") != "out1 err1 out2 err2" || broken == 0 {
		t.Errorf("got %q, broken %d times", got, broken)
	}
	text, err := io.ReadAll(client.ReadLog(t.Context(), exec.ExecId, sdk.WithBoth()))
	if err != nil || string(text) != "out1err1out2err2" {
		t.Errorf("as one text it is %q, %v", text, err)
	}
	_, err = io.ReadAll(client.ReadLog(t.Context(), "never-was", sdk.WithBoth()))
	if !errors.Is(err, sdk.ErrExecNotFound) {
		t.Errorf("of no exec: %v", err)
	}
}

// TestMergeEnds: a follower is done when the sandbox is, and output that is gone is not passed off as none.
func TestMergeEnds(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	exec := d.Script(id, "echo up; echo err >&2")
	stream := openBoth(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec, Follow: true})
	var live both
	for live.outputs[1].Len() == 0 {
		if _, err := live.next(stream); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Engine.ContainerKill(t.Context(), "agbox-primary-"+id, "KILL"); err != nil {
		t.Fatal(err)
	}
	if err := live.drain(stream); err != nil || live.outputs[0].String() != "up\n" || live.outputs[1].String() != "err\n" {
		t.Errorf("%v: %q", err, live.turns)
	}

	id = d.Create(&agboxv1.CreateSpec{})
	for i, gone := range [][]string{{"stdout.log"}, {"stderr.log"}, {"stderr.log", "index"}} {
		exec := d.Begin(&agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sh", "-c", "echo text; echo text >&2"}})
		d.ExecEnd(id, exec.ExecId)
		for _, name := range gone {
			if err := os.Remove(strings.TrimSuffix(exec.StdoutLogPath, "stdout.log") + name); err != nil {
				t.Fatal(err)
			}
		}
		for _, follow := range []bool{false, true} {
			err := new(both).drain(openBoth(t, d, &agboxv1.ReadExecLogRequest{ExecId: exec.ExecId, Follow: follow}))
			if err == nil || !strings.Contains(err.Error(), exec.ExecId+" was removed from the disk") {
				t.Errorf("%d, follow %v: %v", i, follow, err)
			}
		}
	}
}
