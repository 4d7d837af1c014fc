// Package dockertest gives tests a real Docker engine, small images that come from no registry, and a check
// that nothing of a sandbox was left behind.
//
// Nothing here is for production code. Every image is a tar built in memory and imported under
// agbox-test/<variant>:<hash of its content>, so it is made once per machine and reused by every later run.
package dockertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// answerTime bounds one engine's first answer.
const answerTime = time.Minute

// Engine returns a client of the engine at DOCKER_HOST, or of Docker's default socket, with the API version
// negotiated; it is closed when t ends. Without an engine that answers, t is skipped with one line that says
// so, or fails when AGBOX_REQUIRE_ENGINE=1.
func Engine(t testing.TB) *client.Client {
	t.Helper()
	cli, err := Connect(t.Context())
	if err != nil {
		skiplog.Skip(t, fmt.Sprintf("no Docker engine: %v; run `make engine`", err))
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// Connect is Engine for programs: the caller closes the client. An engine that does not answer within a
// minute is an error.
func Connect(ctx context.Context) (*client.Client, error) {
	cli, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := cli.Ping(ctx); err != nil {
		cli.Close()
		return nil, err
	}
	return cli, nil
}
