package isolation

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets in the IPv4 header, RFC 791.
const (
	source      = 12
	destination = 16
)

var (
	accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	// drop counts, so that a person who looks for a lost packet finds it.
	drop     = []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
	loopback = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte("lo\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")},
	}
	local = []expr.Any{
		&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
	reply = []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}}, // IP_CT_DIR_REPLY
	}
)

// rule joins matches and a verdict.
func rule(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func goTo(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

func load(offset uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}}
}

// masked compares those bits of an address that mask names.
func masked(offset, mask uint32, op expr.CmpOp, value uint32) []expr.Any {
	return append(load(offset),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(mask), Xor: word(0)},
		&expr.Cmp{Op: op, Register: 1, Data: word(value)})
}

func inside(offset uint32, p netip.Prefix) []expr.Any {
	return masked(offset, ^uint32(0)<<(32-p.Bits()), expr.CmpOpEq, number(p.Addr()))
}

func outside(offset uint32, p netip.Prefix) []expr.Any {
	return masked(offset, ^uint32(0)<<(32-p.Bits()), expr.CmpOpNeq, number(p.Addr()))
}

func protocol(number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
	}
}

// ports matches the destination port of TCP and UDP; the rule has to have asked for one of them.
func ports(first, last uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: binaryutil.BigEndian.PutUint16(first), ToData: binaryutil.BigEndian.PutUint16(last)},
	}
}

// interval is a map element from the first address of the subnet up to the one behind its last.
func interval(subnet netip.Prefix, chain *nftables.Chain) []nftables.SetElement {
	first := number(subnet.Addr())
	return []nftables.SetElement{
		{Key: word(first), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain.Name}},
		{Key: word(first + 1<<(32-subnet.Bits())), IntervalEnd: true},
	}
}

func word(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func number(a netip.Addr) uint32 {
	four := a.As4()
	return binary.BigEndian.Uint32(four[:])
}
