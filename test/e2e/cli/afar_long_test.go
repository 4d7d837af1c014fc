//go:build long

package cli_test

import (
	"testing"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// startAfar is startCLI for an agbox that finds no socket, only a gateway, which has TLS and wants a token.
func startAfar(t *testing.T) *cli {
	t.Helper()
	c := startCLI(t)
	g := gatewaytest.Start(t, c.Socket(), access.Token{}, gatewaytest.WithTLS())
	c.env = append(g.Environ(), "XDG_RUNTIME_DIR="+t.TempDir(), "TERM=vt100")
	return c
}

// TestLongShellFromAfar is TestShell by way of a gateway: a terminal there is one here.
func TestLongShellFromAfar(t *testing.T) {
	t.Parallel()
	testShell(t, startAfar(t))
}

// TestLongPipeFromAfar is TestPipe by way of a gateway.
func TestLongPipeFromAfar(t *testing.T) {
	t.Parallel()
	testPipe(t, startAfar(t))
}
