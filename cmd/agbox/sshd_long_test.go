//go:build long

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// sshd is Debian's openssh-server, with keys of its own.
type sshd struct {
	program string
	dir     string
	user    string
	clients string // a folder with an ssh that knows and trusts it
}

func sshServer(t *testing.T) *sshd {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		skiplog.Skip(t, "there is no sshd: install Debian's openssh-server")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &sshd{program: program, dir: t.TempDir(), user: me.Username}
	if me.Uid == "0" { // sshd of root wants it, empty
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"host", "client"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(s.dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	s.clients = filepath.Join(s.dir, "bin")
	script := fmt.Sprintf("#!/bin/sh\nexec /usr/bin/ssh -F none -i %s -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \"$@\"\n",
		filepath.Join(s.dir, "client"))
	if err := errors.Join(os.Mkdir(s.clients, 0o755), os.WriteFile(filepath.Join(s.clients, "ssh"), []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	return s
}

// serve lets its clients in until the test ends, where commands have these variables, and returns the URL of it.
func (s *sshd) serve(t testing.TB, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %[1]s/client.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\nSetEnv %s\n",
		s.dir, strings.Join(env, " "))
	path := filepath.Join(dir, "config")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.session(t, conn, path) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return "ssh://" + s.user + "@" + listener.Addr().String()
}

// session is one connection, as inetd would have it served.
func (s *sshd) session(t testing.TB, conn net.Conn, config string) {
	defer conn.Close()
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	command := exec.Command(s.program, "-i", "-f", config)
	command.Stdin, command.Stdout = file, file
	_ = command.Run() // how it ends, its clients tell
}
