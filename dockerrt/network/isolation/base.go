package isolation

import (
	"maps"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/agbox-dev/agbox/ranges"
)

// chain is a chain with the rules that belong in it.
type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

// A kernel keeps the table over restarts and updates of the daemon; one of another version is replaced as a whole.
const (
	preroutingChain = "prerouting"
	inputChain      = "input"
	hostChain       = "host"
	specialChain    = "special"
	reachMap        = "reach"
	reachPrefix     = "reach-"
)

// chains are all that belong in the table. None refers to one behind it.
func (r *Rules) chains() []chain {
	chains := []chain{
		{r.chain(hostChain), [][]expr.Any{rule(reply, accept), rule(drop)}},
		{r.chain(specialChain), specials()},
	}
	seen := map[string]bool{}
	for _, bridge := range slices.Sorted(maps.Keys(r.admitted)) {
		if c := r.admitted[bridge]; !seen[c.Name] {
			seen[c.Name] = true
			chains = append(chains, c)
		}
	}
	elsewhere := rule(otherBridge(r.names), accept)
	return append(chains,
		r.hooked(preroutingChain, nftables.ChainHookPrerouting,
			elsewhere,
			rule(otherThanIPv4, drop),
			rule(comesByAnother, drop),
			rule(local, goTo(hostChain)),
			rule(goesBack, accept),
			rule(inside(destination, r.pool), drop),
			rule(reply, accept),
			rule(inputName, []expr.Any{&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: reachMap}}),
			rule(drop),
		),
		r.hooked(inputChain, nftables.ChainHookInput, elsewhere, rule(goTo(hostChain))))
}

func specials() [][]expr.Any {
	var rules [][]expr.Any
	for _, p := range ranges.Reserved {
		rules = append(rules, rule(inside(destination, p), drop))
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

// reaches is the map from a bridge to the chain of what its sandbox may reach.
func (r *Rules) reaches() *nftables.Set {
	// The id only has to be some: with none the library counts, in a variable that callers share.
	return &nftables.Set{
		Table: r.table, ID: 1, Name: reachMap, IsMap: true, KeyType: nftables.TypeIFName, DataType: nftables.TypeVerdict,
	}
}

func element(bridge string, reach chain) []nftables.SetElement {
	return []nftables.SetElement{{Key: ifname(bridge), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: reach.Name}}}
}
