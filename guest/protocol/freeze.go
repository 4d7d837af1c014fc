package protocol

// Freeze makes the clocks of timeouts, graces and Stop stand still until Thaw; nothing expires in
// between. It is for the time that the whole sandbox is paused. A second Freeze changes nothing.
type Freeze struct{}

// Frozen answers each Freeze.
type Frozen struct{}

// Thaw makes the clocks go on where they stopped. Without a Freeze before it does nothing.
type Thaw struct{}

func (*Freeze) put(*encoder)   {}
func (*Freeze) set(field) bool { return true }

func (*Frozen) put(*encoder)   {}
func (*Frozen) set(field) bool { return true }

func (*Thaw) put(*encoder)   {}
func (*Thaw) set(field) bool { return true }
