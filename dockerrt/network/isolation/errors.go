package isolation

import (
	"errors"
	"fmt"
)

var (
	// ErrNotPermitted: the process may not change packet rules.
	ErrNotPermitted = errors.New("isolation: not permitted")
	// ErrUnsupported: the kernel lacks nftables, or a part of it that the rules need.
	ErrUnsupported = errors.New("isolation: not supported by this kernel")
	// ErrAltered: the kernel does not hold what was written. Install and Hold mend it.
	ErrAltered = errors.New("isolation: packet rules were altered")
	// ErrGone is the ErrAltered of a table that is not there.
	ErrGone = fmt.Errorf("%w: there is no table", ErrAltered)
	// ErrInvalid: a range, bridge or destination that no rule can be made of.
	ErrInvalid = errors.New("isolation: invalid")
)
