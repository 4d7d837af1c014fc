package isolation

import "errors"

var (
	// ErrNotPermitted: the process may not change packet rules.
	ErrNotPermitted = errors.New("isolation: not permitted")
	// ErrUnsupported: the kernel lacks nftables, or a part of it that the rules need.
	ErrUnsupported = errors.New("isolation: not supported by this kernel")
	// ErrAltered: the kernel does not hold what was written. Install repairs the base, Restrict a restriction.
	ErrAltered = errors.New("isolation: packet rules were altered")
	// ErrInvalid: a range, subnet or destination that no rule can be made of.
	ErrInvalid = errors.New("isolation: invalid")
)
