package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/spf13/cobra"
)

func (a daemonCommands) portForwardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "port-forward SANDBOX [LOCAL:]PORT...",
		Short: "Reach ports of a sandbox on this machine's localhost",
		Long: `Listen on 127.0.0.1:LOCAL (the same number, unless said otherwise; 0: any that is free) and connect each
client to PORT of the sandbox, where something listens on localhost or all addresses. Nothing has to be
published. A sandbox that was created with --wake traffic goes on for a connection.`,
		Args: cobra.MinimumNArgs(2),
		RunE: a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
			f := &forward{app: a.app, client: c, sandbox: args[0]}
			return f.run(ctx, args[1:])
		}),
	}
}

// forward connects clients of this machine to ports of a sandbox.
type forward struct {
	*app
	client  *sdk.Client
	sandbox string
	tasks   sync.WaitGroup
}

// run ends with ctx, and waits for all that it began.
func (f *forward) run(ctx context.Context, ports []string) error {
	var pairs [][2]uint16
	for _, p := range ports {
		pair, err := parseForward(p)
		if err != nil {
			return err
		}
		pairs = append(pairs, pair)
	}
	if _, err := f.client.GetSandbox(ctx, f.sandbox); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer f.tasks.Wait()
	defer cancel(nil)
	for _, pair := range pairs {
		local, inside := pair[0], pair[1]
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
		if err != nil {
			return fmt.Errorf("%w: name another port of this machine: LOCAL:%d", err, inside)
		}
		context.AfterFunc(ctx, func() { listener.Close() })
		f.say("%s is port %d of %s", listener.Addr(), inside, f.sandbox)
		f.tasks.Go(func() { cancel(f.accept(ctx, listener, inside)) })
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (f *forward) accept(ctx context.Context, listener net.Listener, port uint16) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		f.tasks.Go(func() {
			if err := f.connect(ctx, conn.(*net.TCPConn), port); err != nil && ctx.Err() == nil {
				f.say("port %d: %v", port, err)
			}
		})
	}
}

// connect carries one client's connection to its end. Each side is told of the other's end by itself.
func (f *forward) connect(ctx context.Context, local *net.TCPConn, port uint16) error {
	defer local.Close()
	remote, err := f.client.DialPort(ctx, f.sandbox, port)
	if err != nil {
		local.SetLinger(0) // as if nobody listened
		return err
	}
	defer remote.Close()
	defer context.AfterFunc(ctx, func() { local.Close(); remote.Close() })()
	inward := make(chan error, 1)
	go func() {
		_, err := io.Copy(remote, local)
		inward <- errors.Join(err, remote.(interface{ CloseWrite() error }).CloseWrite())
	}()
	_, err = io.Copy(local, remote)
	err = errors.Join(err, local.CloseWrite())
	if err != nil { // else our client may still have something to say
		local.Close()
	}
	return errors.Join(err, <-inward)
}

// parseForward reads [LOCAL:]PORT: the port here, and the one inside.
func parseForward(text string) (pair [2]uint16, err error) {
	first, second, both := strings.Cut(text, ":")
	if !both {
		second = first
	}
	l, err := strconv.ParseUint(first, 10, 16)
	i, wrong := strconv.ParseUint(second, 10, 16)
	if err != nil || wrong != nil || i == 0 {
		return pair, fmt.Errorf("%q is not a port or two: give PORT or LOCAL:PORT, from 1 to 65535, such as 8080 or 8080:3000", text)
	}
	return [2]uint16{uint16(l), uint16(i)}, nil
}
