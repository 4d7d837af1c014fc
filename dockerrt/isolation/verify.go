package isolation

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Verify compares the kernel's rules with those that Install and Restrict write. ErrAltered names the first difference
// and what to do. Others who change packet rules, Docker too, do not disturb it.
func (r *Rules) Verify() error {
	conn, err := r.dial()
	if err != nil {
		return r.explain("read", err)
	}
	defer conn.CloseLasting()
	// A Restrict or Release between two reads looks like a difference, once.
	var difference string
	for range 2 {
		if difference, err = r.difference(conn); difference == "" || err != nil {
			return r.explain("read", err)
		}
	}
	return fmt.Errorf("%w: table ip %s: %s", ErrAltered, r.table.Name, difference)
}

func (r *Rules) difference(conn *nftables.Conn) (string, error) {
	table, err := conn.ListTableOfFamily(r.table.Name, r.table.Family)
	if isMissing(err) {
		return "it is missing: install the rules and every restriction again", nil
	} else if err != nil {
		return "", err
	}
	if table.Flags != 0 {
		return "it is dormant, so that nothing in it is in force: install the rules again", nil
	}
	for _, want := range r.base() {
		difference, err := r.chainDifference(conn, want)
		if difference != "" || err != nil {
			return "chain " + want.Name + ": " + difference + ": install the rules again", err
		}
	}
	return r.restrictionDifference(conn)
}

func (r *Rules) chainDifference(conn *nftables.Conn, want chain) (string, error) {
	got, err := conn.ListChain(r.table, want.Name)
	if err != nil {
		return "it is missing", nil // the library keeps the reason to itself; the table could be read just now
	}
	if !same(got.Hooknum, want.Hooknum) || !same(got.Priority, want.Priority) || !same(got.Policy, want.Policy) {
		return "its hook, priority or policy is another", nil
	}
	rules, err := conn.GetRules(r.table, want.Chain)
	if err != nil {
		return "", err
	}
	for i := range max(len(rules), len(want.rules)) {
		switch {
		case i >= len(want.rules):
			return fmt.Sprintf("rule %d is not ours", i+1), nil
		case i >= len(rules):
			return fmt.Sprintf("it has %d rules in place of %d", len(rules), len(want.rules)), nil
		}
		read, err := encode(rules[i].Exprs)
		if err != nil {
			return "", err
		}
		written, err := encode(want.rules[i])
		if err != nil {
			return "", err
		}
		if !bytes.Equal(read, written) {
			return fmt.Sprintf("rule %d is another", i+1), nil
		}
	}
	return "", nil
}

func (r *Rules) restrictionDifference(conn *nftables.Conn) (string, error) {
	chains, err := conn.ListChainsOfTableFamily(r.table.Family)
	if err != nil {
		return "", err
	}
	subnets, err := r.subnets(conn)
	if err != nil {
		return "", err
	}
	inForce := map[string]bool{}
	for _, subnet := range subnets {
		c := r.subnetChain(subnet)
		inForce[c.Name] = true
		rules, err := conn.GetRules(r.table, c)
		if err != nil {
			return "", err
		}
		if intact, err := sealed(rules); !intact || err != nil {
			return fmt.Sprintf("chain %s: its rules are others: restrict the subnet again", c.Name), err
		}
	}
	for _, c := range chains {
		if c.Table.Name == r.table.Name && strings.HasPrefix(c.Name, subnetPrefix) && !inForce[c.Name] {
			return fmt.Sprintf("chain %s: nothing leads to it: restrict the subnet again", c.Name), nil
		}
	}
	return "", nil
}

// sealed reports whether the rules are those of a subnet's chain as Restrict wrote it.
func sealed(rules []*nftables.Rule) (bool, error) {
	if len(rules) == 0 {
		return false, nil
	}
	var all [][]expr.Any
	for _, rule := range rules {
		all = append(all, rule.Exprs)
	}
	last := len(rules) - 1
	seal, err := sealOf(all[:last])
	if err != nil || !bytes.Equal(seal, rules[last].UserData) {
		return false, err
	}
	read, err := encode(all[last])
	if err != nil {
		return false, err
	}
	written, err := encode(drop)
	return bytes.Equal(read, written), err
}

// encode gives the kernel's form of a rule, without what its counters have counted.
func encode(exprs []expr.Any) ([]byte, error) {
	var encoded [][]byte
	for _, e := range exprs {
		if _, counts := e.(*expr.Counter); counts {
			e = &expr.Counter{}
		}
		one, err := expr.Marshal(byte(nftables.TableFamilyIPv4), e)
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, one)
	}
	return slices.Concat(encoded...), nil
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
