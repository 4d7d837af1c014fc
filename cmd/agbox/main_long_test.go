//go:build long

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox-dev/agbox/gateway/access"
	"github.com/agbox-dev/agbox/test/gatewaytest"
)

// TestLongScriptsByGateway plays the sessions of TestScripts over https with a token: no socket is there to be found.
func TestLongScriptsByGateway(t *testing.T) {
	t.Parallel()
	playScripts(t, func(t testing.TB, socket string, setenv func(key, value string)) {
		g := gatewaytest.Start(t, socket, access.Token{Grants: access.Grants}, gatewaytest.WithTLS())
		setenv("XDG_RUNTIME_DIR", t.TempDir())
		setenv("AGBOX_HOST", g.URL())
		setenv("AGBOX_TOKEN", g.Token)
		setenv("AGBOX_CA", g.CA())
	})
}

// TestLongScriptsBySSH plays them over ssh, which runs agbox dial-stdio on the other side.
func TestLongScriptsBySSH(t *testing.T) {
	t.Parallel()
	sshd := sshServer(t)
	playScripts(t, func(t testing.TB, socket string, setenv func(key, value string)) {
		dir := t.TempDir()
		setenv("XDG_RUNTIME_DIR", dir)
		setenv("PATH", sshd.clients+":"+os.Getenv("PATH"))
		setenv("AGBOX_HOST", sshd.serve(t, "XDG_RUNTIME_DIR="+filepath.Dir(filepath.Dir(socket)), "PATH="+os.Getenv("PATH")))
	})
}
