package isolation

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func TestVerify(t *testing.T) {
	s := newSite(t)
	r := s.rules()
	reach := Reach{Allow: []Destination{to("45.0.113.0/24", "tcp", 80, 443), to("192.0.2.2/32", "udp", 53, 53)}}
	input := len(r.chains()) - 1
	narrow := r.reachChain(reach).Chain
	deleteRule := func(conn *nftables.Conn, c *nftables.Chain, n int) {
		rules, err := conn.GetRules(r.table, c)
		s.check(err)
		s.check(conn.DelRule(rules[n]))
	}
	insert := func(conn *nftables.Conn, c *nftables.Chain) {
		conn.InsertRule(&nftables.Rule{Table: r.table, Chain: c, Exprs: accept})
	}
	if err := r.Verify(); !errors.Is(err, ErrGone) {
		t.Errorf("not installed: %v", err)
	}
	for name, test := range map[string]struct {
		alter func(*nftables.Conn)
		want  string
	}{
		"nothing":           {func(*nftables.Conn) {}, ""},
		"table deleted":     {func(c *nftables.Conn) { c.DelTable(r.table) }, "there is no table"},
		"table dormant":     {func(c *nftables.Conn) { s.sleep(r.table.Name) }, "dormant"},
		"rule deleted":      {func(c *nftables.Conn) { deleteRule(c, r.chain(specialChain), 5) }, "chain special: rule 6 is another"},
		"last rule deleted": {func(c *nftables.Conn) { deleteRule(c, r.chain(hostChain), 1) }, "chain host: it has 1 rules in place of 2"},
		"rule inserted":     {func(c *nftables.Conn) { insert(c, r.chain(preroutingChain)) }, "chain prerouting: rule 1 is another"},
		"rule that leads on": {func(c *nftables.Conn) {
			c.InsertRule(&nftables.Rule{Table: r.table, Chain: r.chain(specialChain), Exprs: goTo(hostChain)})
		}, "chain special: rule 1 is another"},
		"rule appended": {func(c *nftables.Conn) {
			c.AddRule(&nftables.Rule{Table: r.table, Chain: r.chain(hostChain), Exprs: accept})
		}, "chain host: rule 3 is not ours"},
		"chain deleted": {func(c *nftables.Conn) { c.FlushChain(r.chain(inputChain)); c.DelChain(r.chain(inputChain)) }, "chain input: it is missing"},
		"policy changed": {func(c *nftables.Conn) {
			policy := nftables.ChainPolicyDrop
			c.AddChain(&nftables.Chain{Table: r.table, Name: inputChain, Policy: &policy})
		}, "chain input: its hook, priority or policy"},
		"hook changed": {func(c *nftables.Conn) {
			late := *r.chains()[input].Chain
			c.FlushChain(&late)
			c.DelChain(&late)
			late.Priority = nftables.ChainPriorityFilter
			c.AddChain(&late)
			for _, exprs := range r.chains()[input].rules {
				c.AddRule(&nftables.Rule{Table: r.table, Chain: &late, Exprs: exprs})
			}
		}, "chain input: its hook, priority or policy"},
		"destination deleted":  {func(c *nftables.Conn) { deleteRule(c, narrow, 0) }, narrow.Name + ": rule 1 is another"},
		"destination inserted": {func(c *nftables.Conn) { insert(c, narrow) }, narrow.Name + ": rule 1 is another"},
		"reach emptied":        {func(c *nftables.Conn) { c.FlushChain(narrow) }, narrow.Name + ": it has 0 rules"},
		"reach's end replaced": {func(c *nftables.Conn) {
			rules, err := c.GetRules(r.table, narrow)
			s.check(err)
			rules[3].Exprs = accept
			c.ReplaceRule(rules[3])
		}, narrow.Name + ": rule 4 is another"},
		"chain added": {func(c *nftables.Conn) { c.AddChain(r.chain("another")) }, "chain another: it is not ours"},
		"map emptied": {func(c *nftables.Conn) { c.FlushSet(r.reaches()) }, "map reach: 2 bridges are missing"},
		"bridge removed": {func(c *nftables.Conn) {
			s.check(c.SetDeleteElements(r.reaches(), element(bridgeA, r.reachChain(reach))))
		}, "map reach: 1 bridges"},
		"bridge added": {func(c *nftables.Conn) {
			s.check(c.SetAddElements(r.reaches(), element("abother", r.reachChain(internet))))
		}, "bridge abother is not ours"},
		"bridge let out": {func(c *nftables.Conn) {
			s.check(c.SetDeleteElements(r.reaches(), element(bridgeA, r.reachChain(reach))))
			s.check(c.SetAddElements(r.reaches(), element(bridgeA, r.reachChain(internet))))
		}, "bridge " + bridgeA + " reaches something else"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{T: t, host: s.host}
			again := s.rules()
			s.check(errors.Join(again.Install(), again.Admit(bridgeB, internet), again.Admit(bridgeA, reach), again.Verify()))
			conn, err := nftables.New(nftables.WithNetNSFd(int(s.host)))
			s.check(err)
			test.alter(conn)
			s.check(conn.Flush())
			err = again.Verify()
			if test.want == "" {
				s.check(err)
			} else if !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; want: %s", err, test.want)
			}
		})
	}
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
	change := message(unix.NFT_MSG_NEWTABLE, unix.NFPROTO_INET, 0, netlink.Acknowledge, attributes)
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
	s.check(errors.Join(r.Install(), r.Admit(bridgeA, Reach{})))
	s.closed(
		probe{who: "host", from: s.a1, network: "udp", to: "10.213.0.1:7000"},
		probe{who: "neighbour", from: s.a1, network: "udp", to: atB},
		probe{who: "outside", from: s.a1, network: "udp", to: "45.0.113.7:7000"})
	s.check(r.Verify())
}
