// Intruder tries from inside a sandbox to reach what it must not, by every way that root with CAP_NET_RAW has: connections,
// datagrams, packets with forged sources, and whole frames, of IPv6 too.
//
//	intruder listen            says "ready", and then what arrives on port 7000, a line each, until it is killed
//	intruder attack ADDRESS…   tries each address once, and prints "answer from ADDRESS" for each that answers
//
// What it sends says what it is: "udp to ADDRESS", "tcp to ADDRESS", "SOURCE to ADDRESS" for a forged one.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	port = 7000
	// patience is how long an answer may take that has no way to come.
	patience = 300 * time.Millisecond
)

// forged are sources that no sandbox has.
var forged = []netip.Addr{
	netip.MustParseAddr("45.77.0.9"), netip.MustParseAddr("10.77.0.9"), netip.MustParseAddr("192.168.77.9"), netip.MustParseAddr("169.254.169.253"),
	netip.MustParseAddr("fd77::9"), netip.MustParseAddr("2a00:77::9"),
}

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "listen":
		err = listen()
	case len(os.Args) > 2 && os.Args[1] == "attack":
		err = attack(os.Args[2:])
	default:
		err = fmt.Errorf("want listen, or attack ADDRESS…")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "intruder:", err)
		os.Exit(1)
	}
}

func listen() error {
	packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			go io.Copy(os.Stdout, conn)
		}
	}()
	buffer := make([]byte, 2048)
	for {
		n, _, err := packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", buffer[:n])
	}
}

func attack(targets []string) error {
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("no raw socket: %w", err)
	}
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	frames, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return fmt.Errorf("no packet socket: %w", err)
	}
	router, err := gateway()
	if err != nil {
		return err
	}
	own, err := ownAddress(eth0)
	if err != nil {
		return err
	}
	var tries sync.WaitGroup
	for _, text := range targets {
		target, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		for _, source := range append(forged, own) {
			if source.Is4() != target.Is4() {
				continue
			}
			packet := datagram(source, target, fmt.Sprintf("%s to %s", source, target))
			if target.Is4() {
				// What the own stack refuses to send goes as a frame.
				_ = unix.Sendto(raw, packet, 0, &unix.SockaddrInet4{Addr: target.As4()})
			}
			to := &unix.SockaddrLinklayer{Ifindex: eth0.Index, Halen: 6}
			for _, hardware := range []net.HardwareAddr{router, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
				copy(to.Addr[:], hardware)
				if err := unix.Sendto(frames, frame(hardware, eth0.HardwareAddr, packet), 0, to); err != nil {
					return fmt.Errorf("cannot send a frame: %w", err)
				}
			}
		}
		for _, network := range []string{"tcp", "udp", "ip4:icmp"} {
			tries.Go(func() { try(network, target) })
		}
	}
	tries.Wait()
	return nil
}

func try(network string, target netip.Addr) {
	to := netip.AddrPortFrom(target, port).String()
	question := fmt.Sprintf("%s to %s\n", network, target)
	if network == "ip4:icmp" {
		to, question = target.String(), "\x08\x00\xf7\xfd\x00\x01\x00\x01"
	}
	conn, err := net.DialTimeout(network, to, patience)
	if err != nil {
		if network == "tcp" && strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()) {
			fmt.Printf("answer from %s: %v\n", target, err)
		}
		return
	}
	defer conn.Close()
	conn.Write([]byte(question))
	if network == "udp" {
		return
	}
	conn.SetDeadline(time.Now().Add(patience))
	if n, _ := conn.Read(make([]byte, 64)); network == "tcp" || n > 0 {
		fmt.Printf("answer from %s: %s\n", target, network)
	}
}

// datagram is an IP packet with a UDP datagram to the port.
func datagram(source, target netip.Addr, text string) []byte {
	udp := binary.BigEndian.AppendUint16(nil, 7777)
	udp = binary.BigEndian.AppendUint16(udp, port)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(text)))
	udp = append(binary.BigEndian.AppendUint16(udp, 0), text...)
	from, to := source.AsSlice(), target.AsSlice()
	pseudo := append(append(append([]byte{}, from...), to...), 0, unix.IPPROTO_UDP, 0, byte(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], checksum(append(pseudo, udp...)))
	if target.Is6() {
		header := []byte{0x60, 0, 0, 0, 0, byte(len(udp)), unix.IPPROTO_UDP, 64}
		return append(append(append(header, from...), to...), udp...)
	}
	header := []byte{0x45, 0, 0, byte(20 + len(udp)), 0x77, 0x77, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	header = append(append(header, from...), to...)
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return append(header, udp...)
}

func checksum(b []byte) uint16 {
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 > 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func frame(to, from net.HardwareAddr, packet []byte) []byte {
	kind := []byte{0x08, 0x00}
	if packet[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return append(append(append(append([]byte{}, to...), from...), kind...), packet...)
}

func ownAddress(i *net.Interface) (netip.Addr, error) {
	addresses, err := i.Addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() {
			return prefix.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address", i.Name)
}

// gateway is the hardware address of the bridge, whose first address is the network's: asking for it makes the kernel
// look it up.
func gateway() (net.HardwareAddr, error) {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return nil, err
	}
	own, err := ownAddress(eth0)
	if err != nil {
		return nil, err
	}
	four := own.As4()
	four[3] = four[3]&0xf0 + 1
	bridge := netip.AddrFrom4(four).String()
	for range 50 {
		if conn, err := net.Dial("udp", net.JoinHostPort(bridge, "9")); err == nil {
			conn.Write([]byte("hello"))
			conn.Close()
		}
		file, err := os.Open("/proc/net/arp")
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > 3 && fields[0] == bridge && fields[2] != "0x0" {
				file.Close()
				return net.ParseMAC(fields[3])
			}
		}
		file.Close()
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("nobody is %s", bridge)
}
