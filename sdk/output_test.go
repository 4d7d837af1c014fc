package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// elsewhere passes attachments on to a daemon, and has its log files seem to be where path says.
type elsewhere struct {
	agboxv1.UnimplementedSandboxServiceServer
	daemon  *sdk.Client
	path    func(string) string
	carries bool // whatever it is asked for, as a daemon does that knows nothing else

	asked   []bool // of each attachment, whether it asked for offsets only
	carried int    // bytes
	told    int
}

func (e *elsewhere) AttachExec(client grpc.BidiStreamingServer[agboxv1.AttachExecRequest, agboxv1.AttachExecResponse]) error {
	request, err := client.Recv()
	if err != nil {
		return err
	}
	e.asked = append(e.asked, request.GetStart().GetOffsetsOnly())
	request.GetStart().OffsetsOnly = request.GetStart().OffsetsOnly && !e.carries
	stream, err := e.daemon.Raw().AttachExec(client.Context())
	if err != nil {
		return err
	}
	defer stream.Close()
	for err = stream.Send(request); err == nil; {
		var response *agboxv1.AttachExecResponse
		if response, err = stream.Recv(); err == nil {
			if status := response.GetAttached(); status != nil {
				status.StdoutLogPath, status.StderrLogPath = e.path(status.StdoutLogPath), e.path(status.StderrLogPath)
			}
			for _, chunk := range []*agboxv1.ExecLogChunk{response.GetStdout(), response.GetStderr()} {
				e.carried += len(chunk.GetData())
				e.told += int(chunk.GetLength())
			}
			err = client.Send(response)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// numbered is text in which no place is like another.
func numbered(word string, bytes int) string {
	var text strings.Builder
	for i := 0; text.Len() < bytes; i++ {
		fmt.Fprintf(&text, "%s %d\n", word, i)
	}
	return text.String()[:bytes]
}

// Who can read the log files gets the same as who cannot. Where a file is not there, or ends too early, the rest comes over
// the wire, from the byte on that was come to. Input is not passed on twice for that: with input all comes over the wire.
func TestOutputFromItsFiles(t *testing.T) {
	c, d, _ := start(t)
	box := ready(t, c)
	const size, from = 3 << 20, 1_234_567
	out, errs := numbered("out", 2*size), numbered("err", size)
	all := len(out) - from + len(errs)
	copied := func(change func(path string) error) func(string) string {
		return func(path string) string {
			there := filepath.Join(t.TempDir(), "log")
			if err := change(there); err != nil {
				t.Error(err)
			}
			return there
		}
	}
	for name, tt := range map[string]struct {
		elsewhere
		opts  []sdk.ExecOption
		asked string
		wire  int // bytes at least
		most  int
	}{
		"here":      {elsewhere{path: func(path string) string { return path }}, nil, "[true]", 0, 0},
		"elsewhere": {elsewhere{path: func(string) string { return "/no/such/file" }}, nil, "[true false]", all, all},
		"cut off": {elsewhere{path: copied(func(there string) error {
			return os.WriteFile(there, []byte(out[:from+size/2]), 0o600)
		})}, nil, "[true false]", 1, all - 1},
		"a pipe":     {elsewhere{path: copied(func(there string) error { return syscall.Mkfifo(there, 0o600) })}, nil, "[true false]", all, all},
		"a link":     {elsewhere{path: copied(func(there string) error { return os.Symlink("/dev/zero", there) })}, nil, "[true false]", all, all},
		"old daemon": {elsewhere{path: func(path string) string { return path }, carries: true}, nil, "[true]", all, all},
		"input":      {elsewhere{path: func(path string) string { return path }}, []sdk.ExecOption{sdk.WithStdin()}, "[true]", all, all},
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			d.OnCommand(func(ctx context.Context, command *sdktest.Command) int {
				_, err := io.WriteString(command.Stdout, out[:size])
				select {
				case <-gate:
				case <-ctx.Done():
				}
				for i := size; err == nil && i < 2*size; i += size / 4 { // both in turns, while they are followed
					_, err = io.WriteString(command.Stdout, out[i:i+size/4])
					_, failed := io.WriteString(command.Stderr, errs[i-size:i-size+size/4])
					err = errors.Join(err, failed)
				}
				if err != nil {
					t.Error(err)
				}
				return 3
			})
			exec, err := c.CreateExec(t.Context(), box.ID, []string{"play"}, tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			there := &tt.elsewhere
			there.daemon = c
			_, socket := sdktest.Stub(t, there)
			far, err := sdk.New(sdk.WithSocket(socket))
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			stdout := &grown{size: size - from, do: func() { close(gate) }}
			var stderr grown
			a, err := far.AttachExec(t.Context(), exec.ID, sdk.WithOutput(stdout, &stderr), sdk.WithOutputFrom(from, 0))
			if err != nil {
				t.Fatal(err)
			}
			ended, err := a.Wait()
			if err != nil || ended.ExitCode != 3 || stdout.String() != out[from:] || stderr.String() != errs {
				t.Errorf("%d bytes of stdout and %d of stderr, %v, %v", stdout.Len(), stderr.Len(), ended, err)
			}
			if o, e := a.Offsets(); o != 2*size || e != size {
				t.Errorf("it has come to %d and %d", o, e)
			}
			if asked := fmt.Sprint(there.asked); asked != tt.asked || there.carried < tt.wire || there.carried > tt.most {
				t.Errorf("asked %v, %d bytes came over the wire, %d were told", asked, there.carried, there.told)
			}
		})
	}
}

// grown does something once it has so many bytes.
type grown struct {
	strings.Builder
	size int
	do   func()
}

func (g *grown) Write(p []byte) (int, error) {
	n, err := g.Builder.Write(p)
	if g.do != nil && g.Len() >= g.size {
		g.do()
		g.do = nil
	}
	return n, err
}
