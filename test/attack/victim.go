package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

// tempo is the rest between two pieces of a victim's work.
const tempo = 200 * time.Millisecond

// victim is a sandbox at work. Whatever is otherwise there than it must be is a problem.
type victim struct {
	*box
	work    sync.WaitGroup
	counter int
	ticker  sdk.Exec // counts on its stdout as long as the sandbox lives

	done    atomic.Int64
	longest atomic.Int64 // a piece of work, in nanoseconds
}

func (a *arena) newVictim(ctx context.Context, n int) (*victim, error) {
	b, err := a.prepared(fmt.Sprintf("victim%d", n), sdk.Spec{Limits: sdk.Limits{MemoryLimit: 128 << 20, PidsLimit: 128}}, nil)
	if err == nil {
		err = b.start(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("victim %d: %w", n, err)
	}
	v := &victim{box: b}
	v.ticker, err = a.SDK.CreateExec(ctx, b.id, []string{"sh", "-c", `i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done`})
	return v, err
}

// live works until quiet is closed.
func (v *victim) live(ctx context.Context, quiet <-chan struct{}) {
	for name, piece := range map[string]func(context.Context) error{
		"exec": v.exec, "input": v.input, "terminal": v.terminal, "files": v.files, "changes": v.look,
	} {
		v.work.Go(func() {
			for {
				v.piece(ctx, name, piece)
				select {
				case <-quiet:
					return
				case <-ctx.Done():
					return
				case <-time.After(tempo):
				}
			}
		})
	}
	v.work.Go(func() { v.follow(ctx, quiet) })
}

// piece does one piece of work and notes how it went.
func (v *victim) piece(ctx context.Context, name string, do func(context.Context) error) {
	began := time.Now()
	if err := within(ctx, patience, name, do); err != nil && ctx.Err() == nil {
		v.problem("%s: %v", v.id, err)
	}
	v.took(time.Since(began))
}

func (v *victim) took(d time.Duration) {
	v.done.Add(1)
	for {
		most := v.longest.Load()
		if int64(d) <= most || v.longest.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// exec counts on in a file.
func (v *victim) exec(ctx context.Context) error {
	v.counter++
	code := v.counter % 100
	result, err := v.SDK.Run(ctx, v.id, []string{"sh", "-c",
		fmt.Sprintf(`n=$(cat count 2>/dev/null || echo 0); n=$((n+1)); echo $n >count; echo $n; seq 1 300; echo wrong $n >&2; exit %d`, code)})
	if err != nil {
		return err
	}
	var want strings.Builder
	fmt.Fprintln(&want, v.counter)
	for i := range 300 {
		fmt.Fprintln(&want, i+1)
	}
	if result.ExitCode != code || string(result.Stdout) != want.String() || string(result.Stderr) != fmt.Sprintf("wrong %d\n", v.counter) {
		return fmt.Errorf("number %d ended with %d, %.60q, %.60q", v.counter, result.ExitCode, result.Stdout, result.Stderr)
	}
	return nil
}

// input is given back by cat, in pieces.
func (v *victim) input(ctx context.Context) error {
	exec, err := v.SDK.CreateExec(ctx, v.id, []string{"sh", "-c", "cat; exit 9"}, sdk.WithStdin())
	if err != nil {
		return err
	}
	var out bytes.Buffer
	attached, err := v.SDK.AttachExec(ctx, exec.ID, sdk.WithOutput(&out, io.Discard), sdk.WithOutputFrom(0, 0))
	if err != nil {
		return err
	}
	defer attached.Detach()
	want := make([]byte, 100_000)
	_, _ = rand.Read(want)
	for rest := want; len(rest) > 0; rest = rest[min(len(rest), 7_777):] {
		if _, err := attached.Write(rest[:min(len(rest), 7_777)]); err != nil {
			return err
		}
	}
	if err := attached.CloseStdin(); err != nil {
		return err
	}
	end, err := attached.Wait()
	if err != nil {
		return err
	}
	if end.ExitCode != 9 || !bytes.Equal(out.Bytes(), want) {
		return fmt.Errorf("it ended with %d and gave %d bytes back of %d", end.ExitCode, out.Len(), len(want))
	}
	return nil
}

// terminal is read from and written to.
func (v *victim) terminal(ctx context.Context) error {
	exec, err := v.SDK.CreateExec(ctx, v.id, []string{"sh", "-c", `test -t 0 && stty size && read x && echo "got:$x"; exit 5`}, sdk.WithTerminal(33, 77))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	attached, err := v.SDK.AttachExec(ctx, exec.ID, sdk.WithOutput(&out, io.Discard), sdk.WithOutputFrom(0, 0))
	if err != nil {
		return err
	}
	defer attached.Detach()
	if _, err := attached.Write([]byte("typed\n")); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	end, err := attached.Wait()
	if err != nil {
		return err
	}
	if said := out.String(); end.ExitCode != 5 || !strings.Contains(said, "33 77") || !strings.Contains(said, "got:typed") {
		return fmt.Errorf("it ended with %d and said %q", end.ExitCode, said)
	}
	return nil
}

// files go in, are summed up inside, and come out.
func (v *victim) files(ctx context.Context) error {
	dir, err := os.MkdirTemp(v.config.dir, "f")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	content := make([]byte, 200_000)
	_, _ = rand.Read(content)
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, content, 0o640); err != nil {
		return err
	}
	if _, err := v.SDK.Upload(ctx, v.id, in, "/workspace/file"); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	sum := sha256.Sum256(content)
	result, err := v.SDK.Run(ctx, v.id, []string{"sha256sum", "/workspace/file"})
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(result.Stdout), hex.EncodeToString(sum[:])) {
		return fmt.Errorf("the sum inside is %.80q, %.80q", result.Stdout, result.Stderr)
	}
	if err := v.SDK.Download(ctx, v.id, "/workspace/file", out); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
		return fmt.Errorf("%d bytes came out of %d, %v", len(got), len(content), err)
	}
	return nil
}

// look asks what everybody asks.
func (v *victim) look(ctx context.Context) error {
	found, err := v.SDK.GetSandbox(ctx, v.id)
	if err != nil {
		return err
	}
	if found.State != sdk.StateReady {
		return fmt.Errorf("it is %s: %s", found.State, found.ErrorMessage)
	}
	_, err = v.SDK.Stats(ctx, v.id)
	return err
}

// follow reads what the ticker says. Each number comes once, in order and in time.
func (v *victim) follow(ctx context.Context, quiet <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(patience, func() { cancel(errStalled) })
	defer late.Stop()
	v.work.Go(func() {
		select {
		case <-quiet:
			cancel(errQuiet)
		case <-ctx.Done():
		}
	})
	log := v.SDK.ReadLog(ctx, v.ticker.ID, sdk.WithFollow())
	defer log.Close()
	lines := bufio.NewReader(log)
	for want := 1; ; want++ {
		began := time.Now()
		line, err := lines.ReadString('\n')
		if err != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, errQuiet) && !errors.Is(cause, context.Canceled) {
				v.problem("%s: following its log at %d: %v, %v", v.id, want, err, cause)
			}
			return
		}
		late.Reset(patience)
		v.took(time.Since(began))
		if line != fmt.Sprintf("%d\n", want) {
			v.problem("%s: its log has %q in place of %d", v.id, line, want)
			return
		}
	}
}

var errQuiet = errors.New("the attacks are over")

// whole checks that all that the ticker has said so far is there, and that the count in the file is what it was.
func (v *victim) whole(ctx context.Context) {
	log := v.SDK.ReadLog(ctx, v.ticker.ID)
	defer log.Close()
	text, err := io.ReadAll(log)
	if err != nil {
		v.problem("%s: its log: %v", v.id, err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range lines {
		if line != fmt.Sprint(i+1) {
			v.problem("%s: line %d of %d of its log is %q", v.id, i+1, len(lines), line)
			return
		}
	}
	v.piece(ctx, "exec", v.exec)
	v.piece(ctx, "changes", v.look)
}
