package network_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestPorts: a published port is reached from the host, at 127.0.0.1 only, and the handle tells which it is.
func TestPorts(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{
		Ports:   []*agboxv1.PortSpec{{ContainerPort: 8080}},
		Command: []string{"sh", "-c", "while :; do echo served | nc -l -p 8080; done"},
	})
	port := func() *agboxv1.PublishedPort {
		t.Helper()
		got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
		if err != nil || len(got.Sandbox.Ports) != 1 {
			t.Fatalf("the handle is %v, %v", got, err)
		}
		return got.Sandbox.Ports[0]
	}
	p := port()
	if p.ContainerPort != 8080 || p.HostPort == 0 || p.HostIp != "127.0.0.1" || p.Protocol != "tcp" {
		t.Errorf("published at %v", p)
	}
	if text := ask(t, d, id, p); text != "served\n" {
		t.Errorf("the port answers %q", text)
	}
	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	stopped := d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	d.AwaitMatch(id, stopped[len(stopped)-1].Sequence, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_READY })
	if text := ask(t, d, id, port()); text != "served\n" {
		t.Errorf("after a resume the port answers %q", text)
	}
}

// ask connects once somebody listens in the sandbox, and returns what is said.
func ask(t *testing.T, d *servertest.Daemon, id string, p *agboxv1.PublishedPort) string {
	t.Helper()
	listening := fmt.Sprintf("until netstat -tln | grep -q :%d; do sleep 0.05; done", p.ContainerPort)
	if end, _, stderr := d.Exec(id, "sh", "-c", listening); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(context.Background(), "tcp", fmt.Sprintf("%s:%d", p.HostIp, p.HostPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
