package network

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/network"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// ErrPoolExhausted: every subnet of the configured pool is in use.
var ErrPoolExhausted = errors.New("dockerrt: no free subnet")

// subnets hands out the subnets of the pool, because Docker's own pools end at about 30 networks.
type subnets struct {
	pool netip.Prefix
	bits int

	mu    sync.Mutex
	taken map[netip.Prefix]bool // ours, and foreign ones of any size
	next  netip.Addr
}

// newSubnets learns which subnets Docker's networks and the host's routes occupy.
func newSubnets(pool netip.Prefix, bits int, networks []network.Summary) *subnets {
	s := &subnets{pool: pool.Masked(), bits: bits, taken: map[netip.Prefix]bool{}}
	s.next = s.pool.Addr()
	for _, n := range networks {
		for _, subnet := range subnetsOf(n.IPAM) {
			s.taken[subnet] = true
		}
	}
	for _, route := range hostRoutes() {
		s.taken[route] = true
	}
	return s
}

func subnetsOf(ipam network.IPAM) []netip.Prefix {
	var list []netip.Prefix
	for _, config := range ipam.Config {
		if subnet, err := netip.ParsePrefix(config.Subnet); err == nil {
			list = append(list, subnet.Masked())
		}
	}
	return list
}

// take returns a subnet that nothing else uses, going round the pool so that one just released rests.
func (s *subnets) take() (netip.Prefix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := uint32(1) << (32 - s.bits)
	for range uint32(1) << (s.bits - s.pool.Bits()) {
		candidate := netip.PrefixFrom(s.next, s.bits)
		s.next = advance(s.next, step)
		if !s.pool.Contains(s.next) {
			s.next = s.pool.Addr()
		}
		if !s.overlaps(candidate) {
			s.taken[candidate] = true
			return candidate, nil
		}
	}
	return netip.Prefix{}, engine.Coded("NETWORK_POOL_EXHAUSTED",
		"%w: every /%d of %s is in use: delete sandboxes, or set network.pool to a larger range", ErrPoolExhausted, s.bits, s.pool)
}

// census returns how many subnets of the pool are in use, by whomever, and how many there are.
func (s *subnets) census() (used, total uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total = uint32(1) << (s.bits - s.pool.Bits())
	ours := map[netip.Prefix]bool{}
	for taken := range s.taken {
		switch {
		case !taken.Overlaps(s.pool):
		case taken.Bits() >= s.bits:
			ours[netip.PrefixFrom(taken.Addr(), s.bits).Masked()] = true
		case taken.Bits() <= s.pool.Bits():
			return total, total
		default:
			used += uint32(1) << (s.bits - taken.Bits())
		}
	}
	return min(used+uint32(len(ours)), total), total
}

func (s *subnets) overlaps(candidate netip.Prefix) bool {
	if s.taken[candidate] {
		return true
	}
	for other := range s.taken {
		if other.Bits() != s.bits && other.Overlaps(candidate) {
			return true
		}
	}
	return false
}

func (s *subnets) release(subnet netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool.Overlaps(subnet) {
		delete(s.taken, subnet)
	}
}

func advance(a netip.Addr, step uint32) netip.Addr {
	four := a.As4()
	var next [4]byte
	binary.BigEndian.PutUint32(next[:], binary.BigEndian.Uint32(four[:])+step)
	return netip.AddrFrom4(next)
}

// hostRoutes reads the kernel's IPv4 routes, but for the default one; none where there is no /proc.
func hostRoutes() []netip.Prefix {
	file, err := os.Open("/proc/net/route")
	if err != nil {
		return nil
	}
	defer file.Close()
	var routes []netip.Prefix
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 {
			continue
		}
		destination, mask := routeWord(fields[1]), routeWord(fields[7])
		if bits := onesOf(mask); bits > 0 && destination.IsValid() {
			routes = append(routes, netip.PrefixFrom(destination, bits).Masked())
		}
	}
	return routes
}

// routeWord decodes an address of /proc/net/route: eight hex digits, least significant byte first.
func routeWord(s string) netip.Addr {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 4 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte{b[3], b[2], b[1], b[0]})
}

func onesOf(mask netip.Addr) int {
	if !mask.IsValid() {
		return 0
	}
	four := mask.As4()
	bits := 0
	for word := binary.BigEndian.Uint32(four[:]); word&(1<<31) != 0; word <<= 1 {
		bits++
	}
	return bits
}
