package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// account is whom a command runs as.
type account struct {
	uid, gid uint32
	groups   []uint32
	name     string // "" when only the number is known
	home     string // "/" when unknown
}

// users looks accounts up in the image's /etc/passwd and /etc/group, which are read again only
// when they have changed.
type users struct {
	passwdPath, groupPath string

	seen   [2]fingerprint
	passwd []account
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

func (u *users) refresh() {
	now := [2]fingerprint{fingerprintOf(u.passwdPath), fingerprintOf(u.groupPath)}
	if now == u.seen {
		return
	}
	u.seen, u.passwd, u.groups = now, nil, nil
	eachLine(u.passwdPath, func(f []string) {
		uid, uidErr := strconv.ParseUint(at(f, 2), 10, 32)
		gid, gidErr := strconv.ParseUint(at(f, 3), 10, 32)
		if uidErr == nil && gidErr == nil {
			u.passwd = append(u.passwd, account{uid: uint32(uid), gid: uint32(gid), name: f[0], home: at(f, 5)})
		}
	})
	eachLine(u.groupPath, func(f []string) {
		if gid, err := strconv.ParseUint(at(f, 2), 10, 32); err == nil {
			u.groups = append(u.groups, group{f[0], uint32(gid), strings.Split(at(f, 3), ",")})
		}
	})
}

func fingerprintOf(path string) fingerprint {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fingerprint{}
	}
	return fingerprint{st.Size, int64(st.Mtim.Sec), int64(st.Mtim.Nsec), st.Ino}
}

func eachLine(path string, do func(fields []string)) {
	if size := fingerprintOf(path).size; size == 0 || size > maxAccountFile {
		return // also what is no regular file, and might never end
	}
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
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
func (u *users) rule(imageUser string) (account, string) {
	u.refresh()
	if u.named("agbox") != nil {
		return u.lookup("agbox")
	}
	return u.image(imageUser)
}

// image returns the account that Docker runs the image as when nobody says otherwise.
func (u *users) image(imageUser string) (account, string) {
	if imageUser == "" {
		imageUser = "0"
	}
	return u.lookup(imageUser)
}

func (u *users) named(name string) *account {
	i := slices.IndexFunc(u.passwd, func(a account) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &u.passwd[i]
}

func (u *users) numbered(uid uint32) *account {
	i := slices.IndexFunc(u.passwd, func(a account) bool { return a.uid == uid })
	if i < 0 {
		return nil
	}
	return &u.passwd[i]
}

// lookup resolves "name", "uid", "name:group" and so on; the second result says what is unknown,
// "" if nothing is. A number needs no entry. With a group given there are no supplementary ones,
// as in Docker.
func (u *users) lookup(spec string) (account, string) {
	u.refresh()
	user, groupName, hasGroup := strings.Cut(spec, ":")
	a := account{home: "/"}
	known := u.named(user)
	if known == nil {
		uid, err := strconv.ParseUint(user, 10, 31)
		if err != nil && user != "root" {
			return a, "user " + strconv.Quote(user) + " is not in /etc/passwd of the image"
		}
		a.uid = uint32(uid)
		known = u.numbered(a.uid)
	}
	switch {
	case known != nil:
		a = *known
	case a.uid == 0:
		a.name, a.home = "root", "/root"
	}
	if a.home == "" {
		a.home = "/"
	}
	if hasGroup && groupName != "" {
		i := slices.IndexFunc(u.groups, func(g group) bool { return g.name == groupName })
		gid, err := strconv.ParseUint(groupName, 10, 31)
		switch {
		case i >= 0:
			a.gid = u.groups[i].gid
		case err == nil:
			a.gid = uint32(gid)
		default:
			return a, "group " + strconv.Quote(groupName) + " is not in /etc/group of the image"
		}
		return a, ""
	}
	for _, g := range u.groups {
		if a.name != "" && g.gid != a.gid && slices.Contains(g.members, a.name) {
			a.groups = append(a.groups, g.gid)
		}
	}
	return a, ""
}

// self is the account that init runs as.
func (u *users) self(home string) account {
	u.refresh()
	a := account{uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), home: home}
	if known := u.numbered(a.uid); known != nil {
		a.name = known.name
		if a.home == "" {
			a.home = known.home
		}
	} else if a.uid == 0 {
		a.name = "root"
	}
	if a.home == "" {
		a.home = "/"
	}
	return a
}

func (a account) label() string {
	if a.name != "" {
		return a.name
	}
	return strconv.FormatUint(uint64(a.uid), 10)
}

// canSwitchUser tells whether init has CAP_SETUID and CAP_SETGID.
func canSwitchUser() bool {
	const setgid, setuid = 1 << 6, 1 << 7
	header := struct{ version, pid uint32 }{version: 0x20080522}
	var data [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	return errno == 0 && data[0].effective&(setuid|setgid) == setuid|setgid
}
