package isolation

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// chain is a chain with the rules that belong in it.
type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

// A kernel keeps these over restarts and updates of the daemon: a version that renames one has to remove the old one.
const (
	preroutingChain = "prerouting"
	inputChain      = "input"
	hostChain       = "host"
	poolChain       = "pool"
	restrictedMap   = "restricted"
	subnetPrefix    = "sandbox-"
)

// base is the same however many sandboxes there are.
func (r *Rules) base() []chain {
	elsewhere := rule(outside(source, r.pool), accept)
	// The host talks to itself over lo, with an address of a bridge when that is its destination.
	itself := rule(loopback, accept)
	return []chain{
		r.hooked(preroutingChain, nftables.ChainHookPrerouting,
			elsewhere,
			itself,
			rule(local, goTo(hostChain)),
			rule(inside(destination, r.pool), goTo(poolChain)),
			rule(reply, accept),
			rule(load(source), []expr.Any{&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: restrictedMap}}),
		),
		r.hooked(inputChain, nftables.ChainHookInput, elsewhere, itself, rule(goTo(hostChain))),
		{r.chain(hostChain), [][]expr.Any{rule(reply, accept), rule(drop)}},
		{r.chain(poolChain), r.neighbours()},
	}
}

// neighbours drops what goes from one subnet of the pool to another: two subnets differ in at least one of the bits
// between the lengths of pool and subnet. Bridged packets inside a subnet, which br_netfilter sends here too, pass.
func (r *Rules) neighbours() [][]expr.Any {
	var rules [][]expr.Any
	for n := r.pool.Bits(); n < r.bits; n++ {
		bit := uint32(1) << (31 - n)
		rules = append(rules,
			rule(masked(source, bit, expr.CmpOpNeq, 0), masked(destination, bit, expr.CmpOpEq, 0), drop),
			rule(masked(source, bit, expr.CmpOpEq, 0), masked(destination, bit, expr.CmpOpNeq, 0), drop))
	}
	return rules
}

func (r *Rules) chain(name string) *nftables.Chain {
	return &nftables.Chain{Table: r.table, Name: name}
}

// hooked is a base chain after connection tracking (-200) and before Docker's DNAT (-100).
func (r *Rules) hooked(name string, hook *nftables.ChainHook, rules ...[]expr.Any) chain {
	policy := nftables.ChainPolicyAccept
	return chain{&nftables.Chain{
		Table: r.table, Name: name, Type: nftables.ChainTypeFilter,
		Hooknum: hook, Priority: nftables.ChainPriorityMangle, Policy: &policy,
	}, rules}
}

// restricted is the map from a restricted subnet to its chain.
func (r *Rules) restricted() *nftables.Set {
	// The id only has to be some: with none the library counts, in a variable that callers share.
	return &nftables.Set{
		Table: r.table, ID: 1, Name: restrictedMap, IsMap: true, Interval: true,
		KeyType: nftables.TypeIPAddr, DataType: nftables.TypeVerdict,
	}
}

// subnetChain is named after the subnet, "sandbox-10.213.0.16/28", for those who read the rules.
func (r *Rules) subnetChain(subnet netip.Prefix) *nftables.Chain {
	return r.chain(subnetPrefix + subnet.String())
}
