package isolation

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// probe is one try to reach somebody.
type probe struct {
	who     string
	from    netns.NsHandle
	network string // tcp, udp, icmp
	to      string
	local   string // source address, "" for the usual one
}

// Within silence, a site that answers in a millisecond counts as closed; each test has seen open what it finds
// closed. Patience is for what must answer.
const (
	silence  = 250 * time.Millisecond
	patience = time.Minute
)

// dial connects and hears an echo.
func (p probe) dial(within time.Duration) (net.Conn, error) {
	var conn net.Conn
	deadline := time.Now().Add(within)
	err := on(p.from, func() (err error) {
		dialer := net.Dialer{Deadline: deadline}
		network, question, answer := p.network, "ping", "ping"
		if p.network == "icmp" {
			network = "ip4:icmp"
			question, answer = "\x08\x00\xf7\xfd\x00\x01\x00\x01", "\x00\x00\xff\xfd\x00\x01\x00\x01" // echo request and reply
		}
		switch p.network {
		case "tcp":
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(p.local)}
		case "udp":
			dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(p.local)}
		}
		if conn, err = dialer.Dial(network, p.to); err != nil {
			return err
		}
		conn.SetDeadline(deadline)
		return exchange(conn, question, answer)
	})
	if err != nil && conn != nil {
		conn.Close()
	}
	return conn, err
}

func exchange(conn net.Conn, question, answer string) error {
	if _, err := conn.Write([]byte(question)); err != nil {
		return err
	}
	buffer := make([]byte, 64)
	for {
		n, err := conn.Read(buffer)
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(string(buffer[:n]), answer): // of ICMP the IP header comes too
			return nil
		case conn.RemoteAddr().Network() != "ip": // a raw socket hears of others' questions before it is connected
			return fmt.Errorf("asked %q, answered %q", question, buffer[:n])
		}
	}
}

func (s *site) open(probes ...probe) {
	s.Helper()
	s.each(probes, func(p probe) string {
		conn, err := p.dial(patience)
		if err != nil {
			return err.Error()
		}
		conn.Close()
		return ""
	})
}

func (s *site) closed(probes ...probe) {
	s.Helper()
	s.each(probes, func(p probe) string {
		conn, err := p.dial(silence)
		if err == nil {
			conn.Close()
			return "is open"
		}
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
			return "is not silent: " + err.Error()
		}
		return ""
	})
}

func (s *site) each(probes []probe, try func(probe) string) {
	s.Helper()
	complaints := make([]string, len(probes))
	var tries sync.WaitGroup
	for i, p := range probes {
		tries.Go(func() { complaints[i] = try(p) })
	}
	tries.Wait()
	for i, complaint := range complaints {
		if p := probes[i]; complaint != "" {
			s.Errorf("%s: %s %s: %s", p.who, p.network, p.to, complaint)
		}
	}
}

// flow is one way from a sandbox to a receiver: what is answered by nobody may still arrive.
type flow struct {
	who  string
	from netns.NsHandle
	via  string // source address, "" for the usual one
	to   string
	at   netns.NsHandle
	bind string // the receiver's address
}

// settled is open to every flow of a test.
const settled = "45.0.113.7:7000"

// silent sends along each flow under the rules, by what send does with the connections, then removes the rules and sends
// once more: that has to be the first to arrive.
func (s *site) silent(r *Rules, send func([]net.Conn), flows ...flow) {
	s.Helper()
	byOrigin := map[netns.NsHandle][]net.Conn{}
	senders, receivers := make([]net.Conn, len(flows)), make([]net.PacketConn, len(flows))
	for i, f := range flows {
		s.thread(f.at, func() (err error) { receivers[i], err = net.ListenPacket("udp4", f.bind); return })
		defer receivers[i].Close()
		s.thread(f.from, func() (err error) {
			dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(f.via)}}
			senders[i], err = dialer.Dial("udp4", f.to)
			return
		})
		defer senders[i].Close()
		byOrigin[f.from] = append(byOrigin[f.from], senders[i])
	}
	for origin, conns := range byOrigin {
		s.thread(origin, func() error {
			// On one processor packets are taken in order: with the answer to the last one all have been judged.
			var one unix.CPUSet
			if err := unix.SchedGetaffinity(0, &one); err != nil {
				return err
			}
			for cpu := 0; one.Count() > 1; cpu++ {
				one.Clear(cpu)
			}
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return err
			}
			send(conns)
			last, err := net.Dial("udp4", settled)
			if err != nil {
				return err
			}
			defer last.Close()
			last.SetDeadline(time.Now().Add(patience))
			return exchange(last, "settled", "settled")
		})
	}
	s.check(r.Remove())
	for i, f := range flows {
		if _, err := senders[i].Write([]byte("end")); err != nil {
			s.Fatal(err)
		}
		receivers[i].SetDeadline(time.Now().Add(patience))
		buffer := make([]byte, 64)
		n, _, err := receivers[i].ReadFrom(buffer)
		if err != nil || string(buffer[:n]) != "end" {
			s.Errorf("%s to %s: got %q, %v", f.who, f.to, buffer[:n], err)
		}
	}
}

func once(conns []net.Conn) {
	for _, conn := range conns {
		conn.Write([]byte("forbidden"))
	}
}
