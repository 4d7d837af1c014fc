package pid1

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
// when they have changed. Both are the sandbox's: they are opened without waiting for anybody, and what was opened is
// looked at, not what the name may mean next.
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

// refresh fails when a file cannot be opened now, for instance because somebody holds a lease on it. One that is not there, or is
// no regular file, has no accounts in it.
func (u *users) refresh() error {
	var files [2]regular
	var now [2]fingerprint
	for i, path := range [...]string{u.passwdPath, u.groupPath} {
		var err error
		if files[i], err = openRegular(path); err != nil {
			files[0].close()
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		if st := &files[i].Stat_t; files[i].open {
			now[i] = fingerprint{st.Size, int64(st.Mtim.Sec), int64(st.Mtim.Nsec), st.Ino}
		}
	}
	defer files[0].close()
	defer files[1].close()
	if now == u.seen {
		return nil
	}
	u.seen, u.passwd, u.groups = now, nil, nil
	files[0].eachLine(func(f []string) {
		uid, uidErr := strconv.ParseUint(at(f, 2), 10, 32)
		gid, gidErr := strconv.ParseUint(at(f, 3), 10, 32)
		if uidErr == nil && gidErr == nil {
			u.passwd = append(u.passwd, account{uid: uint32(uid), gid: uint32(gid), name: f[0], home: at(f, 5)})
		}
	})
	files[1].eachLine(func(f []string) {
		if gid, err := strconv.ParseUint(at(f, 2), 10, 32); err == nil {
			u.groups = append(u.groups, group{f[0], uint32(gid), strings.Split(at(f, 3), ",")})
		}
	})
	return nil
}

// regular is a regular file that is open to be read, or none.
type regular struct {
	syscall.Stat_t
	fd   int
	open bool
}

// openRegular opens a file without waiting for anybody; none when there is none, or one of another kind.
func openRegular(path string) (regular, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	switch err {
	case nil:
	case syscall.EAGAIN, syscall.EINTR, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return regular{}, err
	default:
		return regular{}, nil
	}
	f := regular{fd: fd, open: true}
	if syscall.Fstat(fd, &f.Stat_t) != nil || f.Mode&syscall.S_IFMT != syscall.S_IFREG {
		f.close()
		return regular{}, nil
	}
	return f, nil
}

func (f *regular) close() {
	if f.open {
		syscall.Close(f.fd)
		f.open = false
	}
}

// start returns up to most bytes of the file's beginning.
func (f *regular) start(most int) []byte {
	buf := make([]byte, most)
	n := 0
	for n < most {
		more, err := syscall.Read(f.fd, buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || more <= 0 {
			break
		}
		n += more
	}
	return buf[:n]
}

func (f *regular) eachLine(do func(fields []string)) {
	if !f.open || f.Size == 0 || f.Size > maxAccountFile {
		return
	}
	for line := range strings.Lines(string(f.start(int(f.Size)))) {
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
	if err := u.refresh(); err != nil {
		return account{}, unreadable(err)
	}
	if u.named("agbox") != nil {
		return u.find("agbox")
	}
	return u.find(imageOrRoot(imageUser))
}

// image returns the account that Docker runs the image as when nobody says otherwise.
func (u *users) image(imageUser string) (account, string) {
	return u.lookup(imageOrRoot(imageUser))
}

func imageOrRoot(imageUser string) string {
	if imageUser == "" {
		return "0"
	}
	return imageUser
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
	if err := u.refresh(); err != nil && spec == "0" {
		return account{name: "root", home: "/root"}, "" // as whom the daemon looks into the sandbox, whatever is wrong there
	} else if err != nil {
		return account{}, unreadable(err)
	}
	return u.find(spec)
}

// find is lookup in what was read already.
func (u *users) find(spec string) (account, string) {
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

func unreadable(err error) string {
	return "the accounts of the sandbox cannot be read: " + err.Error() + " (something in it holds the file)"
}

// self is the account that init runs as, without a name where accounts cannot be read.
func (u *users) self(home string) account {
	if u.refresh() != nil {
		u.seen, u.passwd, u.groups = [2]fingerprint{}, nil, nil
	}
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
	const setgid, setuid = 6, 7
	return capable(setgid) && capable(setuid)
}

// capable tells whether init has a capability, of the first 32.
func capable(number int) bool {
	header := struct{ version, pid uint32 }{version: 0x20080522}
	var data [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	return errno == 0 && data[0].effective>>number&1 == 1
}
