package network_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
	"github.com/agbox-dev/agbox/test/servertest"
)

// greet answers every connection to the listener with a word, until the test ends.
func greet(t *testing.T, listener net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, "open")
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
}

// outside is a machine beyond this host: a network namespace at 45.51.100.2, reached by a wire, that answers on the
// ports 7000 and 8000.
func outside(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: the outside is a network namespace")
	}
	// One at a time, of all test processes of this host.
	turn, err := os.OpenFile(filepath.Join(os.TempDir(), "agbox-test-outside.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { turn.Close() })
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	const here, there = "agboxtest0", "agboxtest1"
	inside := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it: the thread ends with its namespace
		host, err := netns.Get()
		if err == nil {
			_, err = netns.New()
		}
		if err != nil {
			inside <- err
			return
		}
		defer host.Close()
		inside <- errors.Join(
			netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: there}, PeerName: here, PeerNamespace: netlink.NsFd(host)}),
			raise(there, "45.51.100.2/24"), listenAt(t, "45.51.100.2:7000"), listenAt(t, "45.51.100.2:8000"))
	}()
	if err := <-inside; err != nil {
		t.Fatal(err)
	}
	if err := raise(here, "45.51.100.1/24"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(here); err == nil {
			netlink.LinkDel(link)
		}
	})
}

func listenAt(t *testing.T, address string) error {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		greet(t, listener)
	}
	return err
}

func raise(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, parsed), netlink.LinkSetUp(link))
}

// addressOf returns the primary's address and its gateway.
func addressOf(t *testing.T, d *servertest.Daemon, id string) (address, gateway string) {
	t.Helper()
	found, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range found.NetworkSettings.Networks {
		return n.IPAddress, n.Gateway
	}
	t.Fatalf("%s has no network", id)
	return "", ""
}

// reaches reports whether a command of the sandbox gets an answer there.
func reaches(d *servertest.Daemon, id, host string, port int) bool {
	_, stdout, _ := d.Exec(id, "nc", "-w", "2", host, fmt.Sprint(port))
	return strings.Contains(stdout, "open")
}

const answering = `while :; do echo open | nc -l -p 8080; done`

// TestIsolation is a port scan from inside: the host by every address that it has, gateways, neighbours and what they
// publish are closed; the sandbox's own services and the world outside are open.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	ping, err := d.Ping(t.Context(), &agboxv1.PingRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !ping.Isolated {
		if os.Getuid() == 0 {
			t.Fatalf("not isolated: %s", ping.IsolationProblem)
		}
		skiplog.Skip(t, "needs CAP_NET_ADMIN: "+ping.IsolationProblem)
	}
	outside(t)
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	greet(t, listener)
	hostPort := listener.Addr().(*net.TCPAddr).Port

	service := servertest.Web(d, "db")
	service.Command = []string{"sh", "-c", "trap 'exit 0' TERM; (" + answering + ") & wait"}
	service.Healthcheck.Test = []string{"CMD-SHELL", "netstat -tln | grep -q :8080"}
	one := d.Create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{service}})
	two := d.Create(&agboxv1.CreateSpec{
		Command: []string{"sh", "-c", answering},
		Ports:   []*agboxv1.PortSpec{{ContainerPort: 8080, HostIp: "0.0.0.0"}},
	})
	got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: two})
	if err != nil {
		t.Fatal(err)
	}
	published := int(got.Sandbox.Ports[0].HostPort)
	if text := ask(t, d, two, &agboxv1.PublishedPort{ContainerPort: 8080, HostIp: "127.0.0.1", HostPort: uint32(published)}); text != "open\n" {
		t.Errorf("from the host the published port answers %q", text)
	}
	if !reaches(d, one, "db", 8080) || !reaches(d, one, "45.51.100.2", 7000) {
		t.Error("its own service or the world outside is closed")
	}
	_, gatewayOne := addressOf(t, d, one)
	addressTwo, gatewayTwo := addressOf(t, d, two)
	targets := map[string]int{addressTwo: 8080}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() && !prefix.Addr().IsLoopback() {
			targets[prefix.Addr().String()] = hostPort
		}
	}
	for _, gateway := range []string{gatewayOne, gatewayTwo} {
		if targets[gateway] == 0 {
			t.Errorf("%s is no address of the host: %v", gateway, targets)
		}
	}
	var wait []chan string
	for host, port := range targets {
		for _, p := range []int{port, published} {
			result := make(chan string, 1)
			wait = append(wait, result)
			go func() {
				if reaches(d, one, host, p) {
					result <- fmt.Sprintf("%s:%d", host, p)
				}
				close(result)
			}()
		}
	}
	for _, result := range wait {
		if open, found := <-result; found {
			t.Errorf("%s is open from a sandbox", open)
		}
	}
}

// TestNetworkModes: none reaches nothing, allow what it lists, with services or without.
func TestNetworkModes(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	outside(t)
	none := d.Create(&agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "none"}})
	if reaches(d, none, "45.51.100.2", 7000) {
		t.Error("a sandbox without network reaches the world")
	}
	if networks, err := d.Engine.NetworkList(t.Context(), network.ListOptions{}); err != nil {
		t.Error(err)
	} else {
		for _, n := range networks {
			if n.Name == "agbox-net-"+none {
				t.Error("a sandbox without network has one")
			}
		}
	}
	served := d.Create(&agboxv1.CreateSpec{
		Network: &agboxv1.NetworkSpec{Mode: "none"}, RequiredServices: []*agboxv1.ServiceSpec{servertest.Web(d, "db")},
	})
	if reaches(d, served, "45.51.100.2", 7000) {
		t.Error("a sandbox that has only its services reaches the world")
	}
	if _, stdout, stderr := d.Exec(served, "wget", "-qO-", "http://db:8080/index.html"); stdout != "hello from db\n" {
		t.Errorf("its service answers %q, %s", stdout, stderr)
	}
	allowed := d.Create(&agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{
		{Cidr: "45.51.100.0/24", Ports: []uint32{8000}},
	}}})
	check := func(when string) {
		t.Helper()
		if !reaches(d, allowed, "45.51.100.2", 8000) {
			t.Errorf("%s: what is allowed is closed", when)
		}
		if reaches(d, allowed, "45.51.100.2", 7000) {
			t.Errorf("%s: what is not allowed is open", when)
		}
	}
	check("at first")
	d.Restart()
	check("after a restart of the daemon")
	d.Delete(none) // the last sandbox without restriction
	check("after the end of another")
}
