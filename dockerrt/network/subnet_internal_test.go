package network

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func pool(prefix string, bits int, taken ...string) *subnets {
	s := &subnets{pool: netip.MustParsePrefix(prefix), bits: bits, taken: map[netip.Prefix]bool{}}
	s.next = s.pool.Addr()
	for _, t := range taken {
		s.taken[netip.MustParsePrefix(t)] = true
	}
	return s
}

func TestSubnetsAreDistinctAndInThePool(t *testing.T) {
	s := pool("10.1.0.0/24", 28)
	seen := map[netip.Prefix]bool{}
	for range 16 {
		subnet, err := s.take()
		if err != nil || seen[subnet] || subnet.Bits() != 28 || !s.pool.Contains(subnet.Addr()) {
			t.Fatalf("got %v, %v after %v", subnet, err, seen)
		}
		seen[subnet] = true
	}
	_, err := s.take()
	if !errors.Is(err, ErrPoolExhausted) || !strings.Contains(err.Error(), "network.pool") {
		t.Errorf("the end of the pool gives %v", err)
	}
	freed := netip.MustParsePrefix("10.1.0.112/28")
	s.release(freed)
	if subnet, err := s.take(); subnet != freed || err != nil {
		t.Errorf("after a release got %v, %v", subnet, err)
	}
}

func TestReleasedSubnetsRest(t *testing.T) {
	s := pool("10.1.0.0/24", 28)
	first, _ := s.take()
	s.release(first)
	if next, err := s.take(); next == first || err != nil {
		t.Errorf("a subnet just released is handed out at once: %v, %v", next, err)
	}
}

func TestForeignNetworksAreSkipped(t *testing.T) {
	for name, test := range map[string]struct{ taken, want string }{
		"the same":     {"10.1.0.0/28", "10.1.0.16/28"},
		"a larger one": {"10.1.0.0/26", "10.1.0.64/28"},
		"a smaller":    {"10.1.0.4/30", "10.1.0.16/28"},
		"elsewhere":    {"192.168.0.0/16", "10.1.0.0/28"},
	} {
		if got, err := pool("10.1.0.0/24", 28, test.taken).take(); got.String() != test.want || err != nil {
			t.Errorf("%s: got %v, %v; want %s", name, got, err, test.want)
		}
	}
	if got, err := pool("10.1.0.0/24", 28, "10.0.0.0/8").take(); err == nil {
		t.Errorf("a pool that lies in another network gives %v", got)
	}
}

func TestRoutes(t *testing.T) {
	for word, want := range map[string]string{"0000A8C0": "192.168.0.0", "0100007F": "127.0.0.1", "xyz": "invalid IP", "00": "invalid IP"} {
		if got := routeWord(word).String(); got != want {
			t.Errorf("%s is %s, want %s", word, got, want)
		}
	}
	for mask, want := range map[string]int{"255.255.255.0": 24, "0.0.0.0": 0, "255.255.255.255": 32} {
		if got := onesOf(netip.MustParseAddr(mask)); got != want {
			t.Errorf("%s has %d ones, want %d", mask, got, want)
		}
	}
}

func TestCensus(t *testing.T) {
	for _, c := range []struct {
		taken []string
		used  uint32
	}{
		{nil, 0},
		{[]string{"10.1.0.0/28", "10.1.0.16/28", "192.0.2.0/24"}, 2},
		{[]string{"10.1.0.1/32", "10.1.0.2/32"}, 1},
		{[]string{"10.1.0.128/25", "10.1.0.0/28"}, 9},
		{[]string{"10.0.0.0/8", "10.1.0.0/28"}, 16},
		{[]string{"10.1.0.0/25", "10.1.0.0/26", "10.1.0.128/25"}, 16},
	} {
		s := pool("10.1.0.0/24", 28, c.taken...)
		if used, total := s.census(); used != c.used || total != 16 {
			t.Errorf("%v: %d of %d, want %d of 16", c.taken, used, total, c.used)
		}
	}
}
