package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/gateway/access"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// TestEverythingFromAfar: what clients do on the socket they do through the gateway, in the clear on loopback and over TLS.
func TestEverythingFromAfar(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]gatewaytest.Option{"http": nil, "https": {gatewaytest.WithTLS()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, socket := sdktest.Start(t)
			g := gatewaytest.Start(t, socket, access.Token{}, opts...)
			c, ctx := g.Client(g.Token), t.Context()
			if daemon, err := c.Ping(ctx); err != nil || daemon.Name != "agboxd" {
				t.Fatalf("ping: %v, %v", daemon, err)
			}
			box, err := c.CreateSandbox(ctx, sdk.Spec{Image: "image"})
			if err != nil {
				t.Fatal(err)
			}
			result, err := c.Run(ctx, box.ID, []string{"sh", "-c", "echo out; echo err >&2; exit 3"})
			if result.ExitCode != 3 || string(result.Stdout) != "out\n" || string(result.Stderr) != "err\n" {
				t.Errorf("run: %+v, %v", result, err)
			}
			exec, err := c.CreateExec(ctx, box.ID, []string{"cat"}, sdk.WithStdin())
			if err != nil {
				t.Fatal(err)
			}
			if exec.StdoutPath != "" || exec.StderrPath != "" {
				t.Errorf("a client elsewhere is told of %q and %q", exec.StdoutPath, exec.StderrPath)
			}
			var stdout bytes.Buffer
			attached, err := c.AttachExec(ctx, exec.ID, sdk.WithOutput(&stdout, io.Discard), sdk.WithOutputFrom(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			much := strings.Repeat("0123456789abcdef", 16<<10)
			if _, err := io.WriteString(attached, much); err != nil {
				t.Fatal(err)
			}
			if err := attached.CloseStdin(); err != nil {
				t.Fatal(err)
			}
			if ended, err := attached.Wait(); err != nil || ended.ExitCode != 0 || stdout.String() != much {
				t.Errorf("attach: %v, %v, %d bytes", ended, err, stdout.Len())
			}
			if _, err := c.Upload(ctx, box.ID, "main_test.go", "/there/"); err != nil {
				t.Errorf("upload: %v", err)
			}
			if err := c.Download(ctx, box.ID, "/there/main_test.go", t.TempDir()); err != nil {
				t.Errorf("download: %v", err)
			}
			if err := c.Delete(ctx, box.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNobodyWithoutAToken: a request without a token, or with one that does not count, reaches no daemon, whatever it asks.
func TestNobodyWithoutAToken(t *testing.T) {
	t.Parallel()
	_, socket := sdktest.Start(t)
	g := gatewaytest.Start(t, socket, access.Token{}, gatewaytest.WithTLS())
	revoked := g.NewToken(access.Token{Name: "revoked"})
	client := g.Client(revoked)
	if _, err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Tokens.Revoke("revoked"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*sdk.Client{"none": g.Client(""), "wrong": g.Client("e2b_" + strings.Repeat("0", 40)), "revoked": client} {
		_, err := c.Ping(t.Context())
		var e *raw.Error
		if !errors.As(err, &e) || e.Code != codes.Unauthenticated || e.Reason != access.ReasonToken {
			t.Errorf("%s: ping ended with %v", name, err)
		}
		stream, err := c.Raw().SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: "box1"})
		if err == nil {
			_, err = stream.Recv()
			stream.Close()
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: a stream ended with %v", name, err)
		}
	}
}

// TestClientsResume: a gateway that dies and comes back takes nothing with it that clients wait for.
func TestClientsResume(t *testing.T) {
	t.Parallel()
	d, socket := sdktest.Start(t)
	g := gatewaytest.Start(t, socket, access.Token{})
	ends := make(chan struct{})
	d.OnCommand(func(_ context.Context, command *sdktest.Command) int {
		io.WriteString(command.Stdout, "before\n")
		<-ends
		io.WriteString(command.Stdout, "after\n")
		return 0
	})
	lost := make(chan struct{}, 100)
	c, err := sdk.New(sdk.WithHost(g.URL(), g.Token, ""), sdk.WithBrokenStream(func(error) { lost <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	box, err := c.CreateSandbox(t.Context(), sdk.Spec{Image: "image"})
	if err != nil {
		t.Fatal(err)
	}
	exec, err := c.CreateExec(t.Context(), box.ID, []string{"command"})
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	type ended struct {
		exec sdk.Exec
		err  error
	}
	followed := make(chan ended, 1)
	go func() {
		exec, err := c.FollowLogs(t.Context(), exec, writer, io.Discard)
		writer.Close()
		followed <- ended{exec, err}
	}()
	before := make([]byte, len("before\n"))
	if _, err := io.ReadFull(reader, before); err != nil {
		t.Fatal(err)
	}
	g.Down()
	close(ends)
	<-lost // somebody has noticed
	g.Up()
	after, err := io.ReadAll(reader)
	if got := <-followed; err != nil || got.err != nil || string(before)+string(after) != "before\nafter\n" {
		t.Errorf("the command's end came as %+v after %q and %q, %v", got, before, after, err)
	}
}
