package isolation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Verify compares the kernel's rules with those that Install and Admit write. ErrAltered names the first difference;
// Install and Hold mend it. Others who change packet rules, Docker too, do not disturb it.
func (r *Rules) Verify() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verify()
}

func (r *Rules) verify() error {
	conn, err := r.dial()
	if err != nil {
		return r.explain("read", err)
	}
	defer conn.CloseLasting()
	if _, err := conn.ListTableOfFamily(r.table.Name, r.table.Family); isMissing(err) {
		return fmt.Errorf("%w inet %s", ErrGone, r.table.Name)
	}
	difference, err := undisturbed(func() (string, error) { return r.difference(conn) }, r.generation)
	if err != nil || difference == "" {
		return r.explain("read", err)
	}
	return fmt.Errorf("%w: table inet %s: %s", ErrAltered, r.table.Name, difference)
}

// looks is how often the kernel's rules are read that change meanwhile.
const looks = 10

// undisturbed returns the difference that look finds while nobody changes any packet rules: a list of the kernel's that is
// interrupted by a change may leave out what is there. Where they change all the time it is what was found last, which mending
// does no harm to.
func undisturbed(look func() (string, error), generation func() (uint32, error)) (difference string, err error) {
	before, err := generation()
	for range looks {
		if err != nil {
			return "", err
		}
		difference, err = look()
		if err != nil {
			return difference, err
		}
		var after uint32
		if after, err = generation(); err == nil && after == before {
			return difference, nil
		}
		before = after
	}
	return difference, err
}

// generation is a number that changes with all packet rules of the network namespace.
func (r *Rules) generation() (uint32, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: r.netns})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(kernelTimeout)); err != nil {
		return 0, err
	}
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, err
	}
	for _, m := range answers {
		if len(m.Data) < 4 {
			continue
		}
		attributes, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, err
		}
		attributes.ByteOrder = binary.BigEndian
		for attributes.Next() {
			if attributes.Type() == unix.NFTA_GEN_ID {
				return attributes.Uint32(), nil
			}
		}
	}
	return 0, errors.New("the kernel tells no generation of the packet rules")
}

func (r *Rules) difference(conn *nftables.Conn) (string, error) {
	table, err := conn.ListTableOfFamily(r.table.Name, r.table.Family)
	if err != nil {
		return "", err
	}
	if table.Flags != 0 {
		return "it is dormant, so that nothing in it is in force", nil
	}
	all, err := conn.ListChainsOfTableFamily(r.table.Family)
	if err != nil {
		return "", err
	}
	there := map[string]*nftables.Chain{}
	for _, c := range all {
		if c.Table.Name == r.table.Name {
			there[c.Name] = c
		}
	}
	for _, want := range r.chains() {
		difference, err := r.chainDifference(conn, there[want.Name], want)
		if difference != "" || err != nil {
			return "chain " + want.Name + ": " + difference, err
		}
		delete(there, want.Name)
	}
	for name := range there {
		return "chain " + name + ": it is not ours", nil
	}
	return r.mapDifference(conn)
}

func (r *Rules) chainDifference(conn *nftables.Conn, got *nftables.Chain, want chain) (string, error) {
	if got == nil {
		return "it is missing", nil
	}
	if !same(got.Hooknum, want.Hooknum) || !same(got.Priority, want.Priority) || !same(got.Policy, want.Policy) {
		return "its hook, priority or policy is another", nil
	}
	rules, err := conn.GetRules(r.table, want.Chain)
	if isMissing(err) {
		return "it is missing", nil
	} else if err != nil {
		return "", err
	}
	for i := range max(len(rules), len(want.rules)) {
		switch {
		case i >= len(want.rules):
			return fmt.Sprintf("rule %d is not ours", i+1), nil
		case i >= len(rules):
			return fmt.Sprintf("it has %d rules in place of %d", len(rules), len(want.rules)), nil
		case !bytes.Equal(encode(rules[i].Exprs), encode(want.rules[i])):
			return fmt.Sprintf("rule %d is another", i+1), nil
		}
	}
	return "", nil
}

func (r *Rules) mapDifference(conn *nftables.Conn) (string, error) {
	elements, err := conn.GetSetElements(r.reaches())
	if isMissing(err) {
		return "map " + reachMap + ": it is missing", nil
	} else if err != nil {
		return "", err
	}
	left := len(r.admitted)
	for _, e := range elements {
		bridge := strings.TrimRight(string(e.Key), "\x00")
		reach, known := r.admitted[bridge]
		if !known {
			return "map " + reachMap + ": bridge " + bridge + " is not ours", nil
		}
		if !leadsTo(e.Val, reach.Name) {
			return "map " + reachMap + ": bridge " + bridge + " reaches something else", nil
		}
		left--
	}
	if left > 0 {
		return fmt.Sprintf("map %s: %d bridges are missing", reachMap, left), nil
	}
	return "", nil
}

// leadsTo reports whether a verdict, in the kernel's form, is to go to the chain.
func leadsTo(verdict []byte, chain string) bool {
	attributes, err := netlink.NewAttributeDecoder(verdict)
	if err != nil {
		return false
	}
	attributes.ByteOrder = binary.BigEndian
	kind, name := uint32(0), ""
	for attributes.Next() {
		switch attributes.Type() {
		case unix.NFTA_VERDICT_CODE:
			kind = attributes.Uint32()
		case unix.NFTA_VERDICT_CHAIN:
			name = attributes.String()
		}
	}
	return int32(kind) == unix.NFT_GOTO && name == chain
}

// encode gives the kernel's form of a rule, without what its counters have counted. An expression that cannot be encoded
// is none of ours, and stands for itself.
func encode(exprs []expr.Any) []byte {
	var encoded [][]byte
	for _, e := range exprs {
		if _, counts := e.(*expr.Counter); counts {
			e = &expr.Counter{}
		}
		one, err := expr.Marshal(byte(nftables.TableFamilyINet), e)
		if err != nil {
			one = fmt.Appendf(nil, "%T: %v", e, err)
		}
		encoded = append(encoded, one)
	}
	return slices.Concat(encoded...)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
