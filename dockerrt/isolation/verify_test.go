package isolation

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func TestVerify(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	subnet := netip.MustParsePrefix(subnetA)
	allow := []Destination{to("203.0.113.0/24", "tcp", 80, 443), to("192.0.2.2/32", "udp", 53, 53)}
	restriction := r.subnetChain(subnet)
	deleteRule := func(conn *nftables.Conn, c *nftables.Chain, n int) {
		rules, err := conn.GetRules(r.table, c)
		s.check(err)
		s.check(conn.DelRule(rules[n]))
	}
	insert := func(conn *nftables.Conn, c *nftables.Chain) {
		conn.InsertRule(&nftables.Rule{Table: r.table, Chain: c, Exprs: accept})
	}
	if err := r.Verify(); !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("not installed: %v", err)
	}
	for name, test := range map[string]struct {
		alter func(*nftables.Conn)
		want  string
	}{
		"nothing":           {func(*nftables.Conn) {}, ""},
		"table deleted":     {func(c *nftables.Conn) { c.DelTable(r.table) }, "missing"},
		"table dormant":     {func(c *nftables.Conn) { s.sleep(r.table.Name) }, "dormant"},
		"rule deleted":      {func(c *nftables.Conn) { deleteRule(c, r.chain(poolChain), 5) }, "chain pool: rule 6 is another"},
		"last rule deleted": {func(c *nftables.Conn) { deleteRule(c, r.chain(hostChain), 1) }, "chain host: it has 1 rules in place of 2"},
		"rule inserted":     {func(c *nftables.Conn) { insert(c, r.chain(preroutingChain)) }, "chain prerouting: rule 1 is another"},
		"rule that leads on": {func(c *nftables.Conn) {
			c.InsertRule(&nftables.Rule{Table: r.table, Chain: r.chain(poolChain), Exprs: goTo(hostChain)})
		}, "chain pool: rule 1 is another"},
		"rule appended": {func(c *nftables.Conn) {
			c.AddRule(&nftables.Rule{Table: r.table, Chain: r.chain(hostChain), Exprs: accept})
		}, "chain host: rule 3 is not ours"},
		"chain deleted": {func(c *nftables.Conn) { c.FlushChain(r.chain(inputChain)); c.DelChain(r.chain(inputChain)) }, "chain input: it is missing"},
		"policy changed": {func(c *nftables.Conn) {
			policy := nftables.ChainPolicyDrop
			c.AddChain(&nftables.Chain{Table: r.table, Name: inputChain, Policy: &policy})
		}, "chain input: its hook, priority or policy"},
		"hook changed": {func(c *nftables.Conn) {
			late := *r.base()[1].Chain
			c.FlushChain(&late)
			c.DelChain(&late)
			late.Priority = nftables.ChainPriorityFilter
			c.AddChain(&late)
			for _, exprs := range r.base()[1].rules {
				c.AddRule(&nftables.Rule{Table: r.table, Chain: &late, Exprs: exprs})
			}
		}, "chain input: its hook, priority or policy"},
		"destination deleted":  {func(c *nftables.Conn) { deleteRule(c, restriction, 0) }, restriction.Name + ": its rules are others"},
		"destination inserted": {func(c *nftables.Conn) { insert(c, restriction) }, restriction.Name + ": its rules are others"},
		"restriction emptied":  {func(c *nftables.Conn) { c.FlushChain(restriction) }, restriction.Name + ": its rules are others"},
		"restriction's end replaced": {func(c *nftables.Conn) {
			rules, err := c.GetRules(r.table, restriction)
			s.check(err)
			rules[2].Exprs = accept
			c.ReplaceRule(rules[2])
		}, restriction.Name + ": its rules are others"},
		"map emptied": {func(c *nftables.Conn) { c.FlushSet(r.restricted()) }, restriction.Name + ": nothing leads to it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{T: t, host: s.host}
			s.check(r.Install())
			s.check(r.Restrict(subnet, allow))
			s.check(r.Verify())
			conn, err := nftables.New(nftables.WithNetNSFd(int(s.host)))
			s.check(err)
			test.alter(conn)
			s.check(conn.Flush())
			err = s.rules().Verify()
			if test.want == "" {
				s.check(err)
			} else if !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; want: %s", err, test.want)
			}
		})
	}
	// Release clears away what is left of a restriction, too.
	s.check(r.Install())
	s.check(r.Restrict(subnet, allow))
	conn, err := nftables.New(nftables.WithNetNSFd(int(s.host)))
	s.check(err)
	conn.FlushSet(r.restricted())
	s.check(conn.Flush())
	s.check(r.Release(subnet))
	s.check(r.Verify())
}

// sleep makes the table dormant, which the library cannot.
func (s *site) sleep(table string) {
	s.Helper()
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(s.host)})
	s.check(err)
	defer conn.Close()
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: []byte(table + "\x00")},
		{Type: unix.NFTA_TABLE_FLAGS, Data: word(unix.NFT_TABLE_F_DORMANT)},
	})
	s.check(err)
	message := func(kind, family byte, subsystem uint16, flags netlink.HeaderFlags, attributes []byte) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags},
			Data:   append([]byte{family, 0, byte(subsystem >> 8), byte(subsystem)}, attributes...),
		}
	}
	change := message(unix.NFT_MSG_NEWTABLE, unix.NFPROTO_IPV4, 0, netlink.Acknowledge, attributes)
	change.Header.Type |= unix.NFNL_SUBSYS_NFTABLES << 8
	_, err = conn.SendMessages([]netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.NFNL_SUBSYS_NFTABLES, 0, nil),
		change,
		message(unix.NFNL_MSG_BATCH_END, 0, unix.NFNL_SUBSYS_NFTABLES, 0, nil),
	})
	s.check(err)
	_, err = conn.Receive()
	s.check(err)
}

// TestVerifyAfterTraffic: what the counters counted is no difference.
func TestVerifyAfterTraffic(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	s.check(r.Install())
	s.check(r.Restrict(netip.MustParsePrefix(subnetA), nil))
	s.closed(
		probe{who: "host", from: s.a1, network: "udp", to: "10.213.0.1:7000"},
		probe{who: "neighbour", from: s.a1, network: "udp", to: atB},
		probe{who: "outside", from: s.a1, network: "udp", to: "203.0.113.7:7000"})
	s.check(r.Verify())
}
