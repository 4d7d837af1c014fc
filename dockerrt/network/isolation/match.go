package isolation

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Where the destination is in the IPv4 header, RFC 791.
const destination = 16

var (
	accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	// drop counts, so that a person who looks for a lost packet finds it.
	drop          = []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
	inputName     = []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}}
	otherThanIPv4 = []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
	}
	// comesByAnother: an answer to the source would not leave by the interface that the packet came in by.
	comesByAnother = []expr.Any{
		&expr.Fib{Register: 1, ResultOIF: true, FlagSADDR: true, FlagIIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
	// goesBack: the destination is reached by the interface that the packet came in by. Bridged packets, which
	// br_netfilter sends here too, are such.
	goesBack = []expr.Any{
		&expr.Fib{Register: 1, ResultOIF: true, FlagDADDR: true, FlagIIF: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
	local = []expr.Any{
		&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
	// reply is a part of a connection that was opened from the other side. What is only related to one, an ICMP error that
	// names it, is none: anybody can write the name of anybody's connection.
	reply = []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}}, // IP_CT_DIR_REPLY
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED), Xor: word(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: word(0)},
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

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// otherBridge matches what comes from an interface whose name begins otherwise.
func otherBridge(names string) []expr.Any {
	return rule(inputName, []expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte(names)}})
}

func inside(offset uint32, p netip.Prefix) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(^uint32(0) << (32 - p.Bits())), Xor: word(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
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

// ifname is the kernel's form of an interface's name.
func ifname(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

func word(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
