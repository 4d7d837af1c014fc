package account

import (
	"strconv"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// Rules decide whom a command runs as. They read the image's accounts, and do not wait for anybody who holds these. The zero value of
// what is not exported is ready; all belongs to one goroutine.
type Rules struct {
	// User is the sandbox's own, "" for none; ImageUser that of the image. Both are as in Find.
	User, ImageUser string
	// Home is that of this process, for where it may not switch users.
	Home string
	// CanSwitch: this process may switch users.
	CanSwitch bool

	users users
}

// Refresh reads the accounts where they have changed. It fails while somebody holds them.
func (r *Rules) Refresh() error { return r.users.refresh() }

// Of resolves an exec's user; "" is the sandbox's own, else its rule. The second result says what is wrong, "" if nothing is.
func (r *Rules) Of(user string) (Account, string) {
	if user == "" {
		user = r.User
	}
	var a Account
	var problem string
	if user == "" {
		a, problem = r.users.rule(r.ImageUser)
	} else {
		a, problem = r.users.lookup(user)
	}
	if r.CanSwitch {
		return a, problem
	}
	self := r.users.self(r.Home)
	switch {
	case user != "" && problem != "":
		return a, problem
	case user != "" && a.UID != self.UID:
		return a, "user " + strconv.Quote(user) + ": the container runs as user " + self.Label() + " without the right to switch to another"
	}
	return self, ""
}

// Primary is whom Docker would run the image's entrypoint and the main command as.
func (r *Rules) Primary() (Account, string) {
	switch {
	case r.User != "":
		return r.Of(r.User)
	case !r.CanSwitch:
		return r.users.self(r.Home), ""
	}
	return r.users.lookup(imageOrRoot(r.ImageUser))
}

// RootHome is root's home, "" where that is not known.
func (r *Rules) RootHome() string {
	root, problem := r.users.lookup("0")
	if problem != "" {
		return ""
	}
	return root.Home
}

// CanSwitchUser tells whether this process has CAP_SETUID and CAP_SETGID.
func CanSwitchUser() bool {
	const setgid, setuid = 6, 7
	return kernel.Capable(setgid) && kernel.Capable(setuid)
}

// UserName and GroupName are what the accounts call a number, as they were read last; "" where they know it not.
func (r *Rules) UserName(uid uint32) string {
	if known := r.users.numbered(uid); known != nil {
		return known.Name
	}
	return ""
}

func (r *Rules) GroupName(gid uint32) string {
	for _, g := range r.users.groups {
		if g.gid == gid {
			return g.name
		}
	}
	return ""
}
