package files

import (
	"slices"
	"strconv"
	"strings"
)

// Accounts are what /etc/passwd and /etc/group of a sandbox say; "" where it has none.
type Accounts struct{ Passwd, Group string }

// Rule returns the account that an exec without a user has: spec's user, else agbox if the image has it, else the
// image's own, each as in a spec.
func (a Accounts) Rule(specUser, imageUser string) (Account, error) {
	switch {
	case specUser != "":
		return a.Lookup(specUser)
	case field(a.Passwd, "agbox") != nil:
		return a.Lookup("agbox")
	case imageUser != "":
		return a.Lookup(imageUser)
	}
	return Account{}, nil
}

// Lookup resolves "name", "uid", "name:group" and so on as agbox-init does. A number needs no entry.
func (a Accounts) Lookup(spec string) (Account, error) {
	user, group, _ := strings.Cut(spec, ":")
	var account Account
	entry := field(a.Passwd, user)
	uid, err := strconv.ParseUint(user, 10, 31)
	if entry == nil && err == nil {
		entry = numbered(a.Passwd, uid)
		account.UID = int(uid)
	} else if entry == nil && user != "root" {
		return account, Refuse(ErrOwner, "user %q is not in /etc/passwd of the sandbox; name one that is, or a number", user)
	}
	if entry != nil {
		account = Account{number(entry, 2), number(entry, 3)}
	}
	if group == "" {
		return account, nil
	}
	entry = field(a.Group, group)
	gid, err := strconv.ParseUint(group, 10, 31)
	switch {
	case entry != nil:
		account.GID = number(entry, 2)
	case err == nil:
		account.GID = int(gid)
	default:
		return account, Refuse(ErrOwner, "group %q is not in /etc/group of the sandbox; name one that is, or a number", group)
	}
	return account, nil
}

// lines yields the entries of an account file that have a number.
func lines(text string, match func(entry []string) bool) []string {
	for line := range strings.Lines(text) {
		entry := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(entry) > 2 && isNumber(entry[2]) && match(entry) {
			return entry
		}
	}
	return nil
}

func field(text, name string) []string {
	return lines(text, func(entry []string) bool { return entry[0] == name })
}

func numbered(text string, uid uint64) []string {
	return lines(text, func(entry []string) bool { return entry[2] == strconv.FormatUint(uid, 10) })
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

func number(entry []string, i int) int {
	n, _ := strconv.ParseUint(slices.Concat(entry, make([]string, 4))[i], 10, 32)
	return int(n)
}
