//go:build long

package network_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/servertest"
)

// walls is the host that TestLongWalls has made for itself, with what listens there.
type walls struct {
	*testing.T
	daemon  *servertest.Daemon
	proxy   *proxy.Proxy
	outside netns.NsHandle

	mu    sync.Mutex
	hits  []string
	asked []string
	more  *sync.Cond
}

func newWalls(t *testing.T) *walls {
	w := &walls{T: t}
	w.more = sync.NewCond(&w.mu)
	dir, err := os.MkdirTemp("", "walls")
	w.check(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.wires()
	w.check(os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644))
	w.check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	w.check(unix.Mount(filepath.Join(dir, "resolv.conf"), "/etc/resolv.conf", "", unix.MS_BIND, ""))
	w.resolver()

	socket := filepath.Join(dir, "d.sock")
	engine := exec.Command("dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "-H", "unix://"+socket)
	log, err := os.Create(filepath.Join(dir, "log"))
	w.check(err)
	engine.Stdout, engine.Stderr = log, log
	w.check(engine.Start())
	t.Cleanup(func() {
		engine.Process.Signal(unix.SIGTERM)
		engine.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the engine says\n%s", text)
		}
	})
	os.Setenv("DOCKER_HOST", "unix://"+socket)
	api, err := backoff.Retry(t.Context(), func() (*client.Client, error) { return dockertest.Connect(t.Context()) },
		backoff.WithMaxElapsedTime(time.Minute))
	w.check(err)
	api.Close()
	w.proxy, err = proxy.New(socket, filepath.Join(dir, "p"), 1)
	w.check(err)
	t.Cleanup(func() { w.check(w.proxy.Close()) })
	w.daemon = servertest.Start(t, func(c *dockerrt.Config) { c.Host = w.proxy.Host() })
	w.daemon.Server.Host.AllowedCapabilities = []string{"NET_RAW"}
	w.daemon.Restart()
	return w
}

// wires make the outside, and listeners there and on the host.
func (w *walls) wires() {
	w.Helper()
	for name, value := range map[string]string{
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0", "ipv6/conf/all/forwarding": "1",
	} {
		w.check(os.WriteFile("/proc/sys/net/"+name, []byte(value), 0))
	}
	lo, err := netlink.LinkByName("lo")
	w.check(err)
	w.check(netlink.LinkSetUp(lo))
	w.listenAll("host")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it
		host, err := netns.Get()
		if err == nil {
			w.outside, err = netns.New()
		}
		if err == nil {
			err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(host)})
		}
		if err == nil {
			err = w.raise("eth0", append([]string{public, "198.18.5.2", "2a00:5::2"}, forbidden...)...)
		}
		for _, to := range []string{"198.18.5.1", "2a00:5::1"} {
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(to), Dst: everything(to)}))
		}
		w.listenAll("outside")
		done <- err
	}()
	// The other end is there once the listener is; its addresses wait for it.
	w.check(<-done)
	w.check(w.raise("eth0", "198.18.5.1", "2a00:5::1"))
	for _, to := range []string{"198.18.5.2", "2a00:5::7"} {
		w.check(netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(to), Dst: everything(to)}))
	}
}

func everything(like string) *net.IPNet {
	if strings.Contains(like, ":") {
		return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
}

// raise gives the interface the addresses: those of the wire itself with its range, others alone.
func (w *walls) raise(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, text := range addresses {
		if seen[text] {
			continue
		}
		seen[text] = true
		address := netip.MustParseAddr(text)
		bits := address.BitLen()
		if strings.HasPrefix(text, "198.18.5.") {
			bits = 24
		} else if strings.HasPrefix(text, "2a00:5:") {
			bits = 64
		}
		parsed, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", text, bits))
		if err != nil {
			return err
		}
		if address.Is6() {
			parsed.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, parsed); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// listenAll has everything that arrives on port 7000 in this namespace told, until the process ends.
func (w *walls) listenAll(who string) {
	packets, err := net.ListenPacket("udp", ":7000")
	if err != nil {
		w.Error(err)
		return
	}
	streams, err := net.Listen("tcp", ":7000")
	if err != nil {
		w.Error(err)
		return
	}
	w.Cleanup(func() { packets.Close(); streams.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, _, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			w.hit(who, string(buffer[:n]))
		}
	}()
	go func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffer := make([]byte, 2048)
				conn.SetDeadline(time.Now().Add(5 * time.Second))
				n, _ := conn.Read(buffer)
				w.hit(who, string(buffer[:n]))
			}()
		}
	}()
}

func (w *walls) hit(who, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hits = append(w.hits, who+": "+strings.TrimSpace(text))
	w.more.Broadcast()
}

// resolver notes the names that the host's own resolver is asked for, and knows none.
func (w *walls) resolver() {
	packets, err := net.ListenPacket("udp", "127.0.0.1:53")
	w.check(err)
	w.Cleanup(func() { packets.Close() })
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			w.mu.Lock()
			w.asked = append(w.asked, string(buffer[:n]))
			w.mu.Unlock()
			buffer[2], buffer[3] = 0x81, 0x83 // no such name
			packets.WriteTo(buffer[:n], from)
		}
	}()
}

// arrived takes all that has arrived, in the order of its text, each once, when all that was sent before has.
func (w *walls) arrived() []string {
	w.Helper()
	for _, address := range []string{"127.0.0.1", "198.18.5.2"} {
		conn, err := net.Dial("udp", net.JoinHostPort(address, "7000"))
		w.check(err)
		fmt.Fprint(conn, "all")
		conn.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for !slices.Contains(w.hits, "host: all") || !slices.Contains(w.hits, "outside: all") {
		w.more.Wait()
	}
	hits := slices.DeleteFunc(w.hits, func(hit string) bool { return strings.HasSuffix(hit, ": all") })
	w.hits = nil
	slices.Sort(hits)
	return slices.Compact(hits)
}

// flush deletes all tables whose names begin so.
func (w *walls) flush(names string) {
	w.Helper()
	conn, err := nftables.New()
	w.check(err)
	tables, err := conn.ListTables()
	w.check(err)
	deleted := 0
	for _, table := range tables {
		if strings.HasPrefix(table.Name, names) {
			conn.DelTable(table)
			deleted++
		}
	}
	w.check(conn.Flush())
	if deleted == 0 {
		w.Errorf("there is no table %s", names)
	}
}

// others makes sandboxes and deletes them again, whatever comes of it, until it is stopped, and tells how many.
func (w *walls) others(network *agboxv1.NetworkSpec) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	made := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			spec := &agboxv1.CreateSpec{Image: w.daemon.Image}
			if n%2 == 0 {
				spec.Network = network
			}
			created, err := w.daemon.CreateSandbox(context.Background(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
			if err != nil {
				continue
			}
			id := created.Sandbox.SandboxId
			w.daemon.AwaitMatch(id, 0, func(e *agboxv1.SandboxEvent) bool {
				return e.EventType == agboxv1.EventType_SANDBOX_READY || e.EventType == agboxv1.EventType_SANDBOX_FAILED
			})
			if _, err := w.daemon.DeleteSandbox(context.Background(), &agboxv1.DeleteSandboxRequest{SandboxId: id}); err != nil {
				w.Error(err)
			}
		}
		made <- n
	}()
	return func() int { cancel(); return <-made }
}

// listen has everything told that arrives at the sandbox.
func (w *walls) listen(id string) {
	w.Helper()
	made, err := w.daemon.Engine.ContainerExecCreate(w.Context(), "agbox-primary-"+id, container.ExecOptions{User: "0", Cmd: []string{"/intruder", "listen"}, AttachStdout: true})
	w.check(err)
	attached, err := w.daemon.Engine.ContainerExecAttach(w.Context(), made.ID, container.ExecAttachOptions{})
	w.check(err)
	read, write := io.Pipe()
	w.Cleanup(func() { attached.Close(); read.Close() })
	go func() { stdcopy.StdCopy(write, io.Discard, attached.Reader) }()
	lines := bufio.NewScanner(read)
	if !lines.Scan() || lines.Text() != "ready" {
		w.Fatalf("the neighbour says %q", lines.Text())
	}
	go func() {
		for lines.Scan() {
			w.hit("neighbour", lines.Text())
		}
	}()
}

// linkLocal is the IPv6 address that a bridge has by itself.
func (w *walls) linkLocal(gateway string) string {
	w.Helper()
	interfaces, err := net.Interfaces()
	w.check(err)
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		w.check(err)
		at := func(match func(net.IP) bool) int {
			return slices.IndexFunc(addresses, func(a net.Addr) bool { return match(a.(*net.IPNet).IP) })
		}
		if at(func(ip net.IP) bool { return ip.String() == gateway }) >= 0 {
			if own := at(net.IP.IsLinkLocalUnicast); own >= 0 {
				return addresses[own].(*net.IPNet).IP.String()
			}
		}
	}
	w.Fatalf("the bridge with %s has no link-local address", gateway)
	return ""
}

// inside runs a command as root in a primary by the engine's own exec and returns what it says.
func (w *walls) inside(id string, command ...string) string {
	ctx := context.Background()
	made, err := w.daemon.Engine.ContainerExecCreate(ctx, "agbox-primary-"+id, container.ExecOptions{User: "0", Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		w.Error(err)
		return ""
	}
	attached, err := w.daemon.Engine.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		w.Error(err)
		return ""
	}
	defer attached.Close()
	var stdout, stderr strings.Builder
	if _, err := stdcopy.StdCopy(&stdout, &stderr, attached.Reader); err != nil {
		w.Error(err)
	}
	if strings.HasPrefix(stderr.String(), "intruder:") {
		w.Errorf("%s: %v: %s", id, command, stderr.String())
	}
	return stdout.String()
}

func (w *walls) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
