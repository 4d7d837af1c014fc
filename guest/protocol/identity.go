package protocol

// Identity is what a sandbox is beside its container, in place of what its options say.
type Identity struct {
	// Env holds "K=V" entries that go on top of init's own environment, for all commands.
	Env []string
	// User is as in Exec, "" for the rule. Workdir is absolute. Command is the main command, if there is one.
	User    string
	Workdir string
	Command []string
}

func (m *Identity) put(e *encoder) {
	e.strs(1, m.Env)
	e.str(2, m.User)
	e.str(3, m.Workdir)
	e.strs(4, m.Command)
}

func (m *Identity) set(f field) bool {
	switch f.tag {
	case 1:
		return f.strs(&m.Env)
	case 2:
		return f.str(&m.User)
	case 3:
		return f.str(&m.Workdir)
	case 4:
		return f.strs(&m.Command)
	}
	return true
}

func (m *Boot) put(e *encoder) {
	if m.As != nil {
		e.nested(1, m.As)
	}
}

func (m *Boot) set(f field) bool {
	if f.tag == 1 {
		m.As = new(Identity)
		return f.nested(m.As)
	}
	return true
}
