package sdk

import (
	"context"
	"errors"
	"io"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// SandboxLog is one of the logs of a sandbox beside those of its execs, and how to read it. The zero value is all of
// the operation log that there is.
type SandboxLog struct {
	// Source is Operations (also ""), Stdout, Stderr or that of a Service.
	Source SandboxLogSource
	// Service is the service's name, with SourceService only.
	Service string
	// TailBytes, if not nil, begins so many bytes before the present end; of a service, of both its streams.
	TailBytes *uint64
	// Follow reads on: the operation log until the sandbox is deleted, the others until what writes has ended.
	Follow bool
}

// SandboxLogSource is who has written a sandbox's log.
type SandboxLogSource string

const (
	// SourceOperations is the daemon: the steps of the sandbox's life, with what they took and what went wrong.
	SourceOperations SandboxLogSource = "operations"
	// SourceStdout and SourceStderr are the sandbox's own command, or without one the image's entrypoint.
	SourceStdout SandboxLogSource = "stdout"
	SourceStderr SandboxLogSource = "stderr"
	// SourceService is a service, whose output the engine keeps as long as its container.
	SourceService SandboxLogSource = "service"
)

// CopySandboxLog writes a sandbox's log to stdout, and what a service wrote to its stderr to stderr. It returns nil at
// the end of the log, else what the daemon refuses, what ended ctx, or the error of a writer. When the daemon goes away it
// fails with ErrUnavailable, and whoever follows decides with TailBytes where to go on.
func (c *Client) CopySandboxLog(ctx context.Context, id string, log SandboxLog, stdout, stderr io.Writer) error {
	stream, err := c.raw.ReadSandboxLog(ctx, &agboxv1.ReadSandboxLogRequest{
		SandboxId: id, Source: string(log.Source), ServiceName: log.Service, TailBytes: log.TailBytes, Follow: log.Follow})
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		to := stdout
		if chunk.GetStream() == "stderr" {
			to = stderr
		}
		if _, err := to.Write(chunk.GetData()); err != nil {
			return err
		}
	}
}
