// Package account knows whom commands in a sandbox run as, and makes the places where they work.
package account

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// Account is whom a command runs as.
type Account struct {
	UID, GID uint32
	Groups   []uint32
	Name     string // "" when only the number is known
	Home     string // "/" when unknown
}

// users looks accounts up in the image's /etc/passwd and /etc/group, which are read again only
// when they have changed. Both are the sandbox's: they are opened without waiting for anybody, and what was opened is
// looked at, not what the name may mean next.
type users struct {
	seen   [2]fingerprint
	passwd []Account
	groups []group
}

type group struct {
	name    string
	gid     uint32
	members []string
}

type fingerprint struct {
	size, sec, nsec int64
	inode           uint64
}

const maxAccountFile = 4 << 20

// refresh fails when a file cannot be opened now, for instance because somebody holds a lease on it. One that is not there, or is
// no regular file, has no accounts in it.
func (u *users) refresh() error {
	var files [2]kernel.Regular
	var now [2]fingerprint
	for i, path := range [...]string{"/etc/passwd", "/etc/group"} {
		var err error
		if files[i], err = kernel.OpenRegular(path); err != nil {
			files[0].Close()
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		if st := &files[i].Stat_t; files[i].Open {
			now[i] = fingerprint{st.Size, int64(st.Mtim.Sec), int64(st.Mtim.Nsec), st.Ino}
		}
	}
	defer files[0].Close()
	defer files[1].Close()
	if now == u.seen {
		return nil
	}
	u.seen, u.passwd, u.groups = now, nil, nil
	eachLine(files[0], func(f []string) {
		uid, uidErr := strconv.ParseUint(at(f, 2), 10, 32)
		gid, gidErr := strconv.ParseUint(at(f, 3), 10, 32)
		if uidErr == nil && gidErr == nil {
			u.passwd = append(u.passwd, Account{UID: uint32(uid), GID: uint32(gid), Name: f[0], Home: at(f, 5)})
		}
	})
	eachLine(files[1], func(f []string) {
		if gid, err := strconv.ParseUint(at(f, 2), 10, 32); err == nil {
			u.groups = append(u.groups, group{f[0], uint32(gid), strings.Split(at(f, 3), ",")})
		}
	})
	return nil
}

func eachLine(f kernel.Regular, do func(fields []string)) {
	if !f.Open || f.Size == 0 || f.Size > maxAccountFile {
		return
	}
	for line := range strings.Lines(string(f.Start(int(f.Size)))) {
		do(strings.Split(strings.TrimRight(line, "\n"), ":"))
	}
}

func at(f []string, i int) string {
	if i < len(f) {
		return f[i]
	}
	return ""
}

// rule returns the account of commands that name no user: agbox if the image knows one, else the
// image's own user, else root.
func (u *users) rule(imageUser string) (Account, string) {
	if err := u.refresh(); err != nil {
		return Account{}, Unreadable(err)
	}
	if u.named("agbox") != nil {
		return u.find("agbox")
	}
	return u.find(imageOrRoot(imageUser))
}

func imageOrRoot(imageUser string) string {
	if imageUser == "" {
		return "0"
	}
	return imageUser
}

func (u *users) named(name string) *Account {
	i := slices.IndexFunc(u.passwd, func(a Account) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &u.passwd[i]
}

func (u *users) numbered(uid uint32) *Account {
	i := slices.IndexFunc(u.passwd, func(a Account) bool { return a.UID == uid })
	if i < 0 {
		return nil
	}
	return &u.passwd[i]
}

// lookup resolves "name", "uid", "name:group" and so on; the second result says what is unknown,
// "" if nothing is. A number needs no entry. With a group given there are no supplementary ones,
// as in Docker.
func (u *users) lookup(spec string) (Account, string) {
	if err := u.refresh(); err != nil && spec == "0" {
		return Account{Name: "root", Home: "/root"}, "" // as whom the daemon looks into the sandbox, whatever is wrong there
	} else if err != nil {
		return Account{}, Unreadable(err)
	}
	return u.find(spec)
}

// find is lookup in what was read already.
func (u *users) find(spec string) (Account, string) {
	user, groupName, hasGroup := strings.Cut(spec, ":")
	a := Account{Home: "/"}
	known := u.named(user)
	if known == nil {
		uid, err := strconv.ParseUint(user, 10, 31)
		if err != nil && user != "root" {
			return a, "user " + strconv.Quote(user) + " is not in /etc/passwd of the image"
		}
		a.UID = uint32(uid)
		known = u.numbered(a.UID)
	}
	switch {
	case known != nil:
		a = *known
	case a.UID == 0:
		a.Name, a.Home = "root", "/root"
	}
	if a.Home == "" {
		a.Home = "/"
	}
	if hasGroup && groupName != "" {
		i := slices.IndexFunc(u.groups, func(g group) bool { return g.name == groupName })
		gid, err := strconv.ParseUint(groupName, 10, 31)
		switch {
		case i >= 0:
			a.GID = u.groups[i].gid
		case err == nil:
			a.GID = uint32(gid)
		default:
			return a, "group " + strconv.Quote(groupName) + " is not in /etc/group of the image"
		}
		return a, ""
	}
	for _, g := range u.groups {
		if a.Name != "" && g.gid != a.GID && slices.Contains(g.members, a.Name) {
			a.Groups = append(a.Groups, g.gid)
		}
	}
	return a, ""
}

// Unreadable says that Refresh failed.
func Unreadable(err error) string {
	return "the accounts of the sandbox cannot be read: " + err.Error() + " (something in it holds the file)"
}

// self is the account that init runs as, without a name where accounts cannot be read.
func (u *users) self(home string) Account {
	if u.refresh() != nil {
		u.seen, u.passwd, u.groups = [2]fingerprint{}, nil, nil
	}
	a := Account{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home}
	if known := u.numbered(a.UID); known != nil {
		a.Name = known.Name
		if a.Home == "" {
			a.Home = known.Home
		}
	} else if a.UID == 0 {
		a.Name = "root"
	}
	if a.Home == "" {
		a.Home = "/"
	}
	return a
}

// Label is the name, else the number.
func (a Account) Label() string {
	if a.Name != "" {
		return a.Name
	}
	return strconv.FormatUint(uint64(a.UID), 10)
}
