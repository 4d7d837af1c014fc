package pid1

import (
	"strconv"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// lookup finds out what has to be read of the sandbox's own files before a command can start. It has a goroutine of its own, as a file
// may not answer; a start that waits for it is given up in time.
type lookup struct {
	options
	environ []string
	users   users
	canSwap bool // init may switch users
}

// question is about one start.
type question struct {
	of      *execution
	user    string
	primary bool
}

// answer is what there is to know, or why that is not known.
type answer struct {
	question
	account
	rootHome string
	program  bool // the image's entrypoint is a program and no script
	problem  *failure
}

// run answers one question after the other, for as long as init lives.
func (l *lookup) run(questions <-chan question, answers chan<- answer) {
	made := false
	for q := range questions {
		if !made && l.users.refresh() == nil {
			l.makePlaces()
			made = true
		}
		a := answer{question: q}
		if q.primary {
			a.program = len(l.entrypoint) > 0 && l.isProgram(l.entrypoint)
			a.account, a.problem = l.primaryAccount()
		} else {
			a.account, a.problem = l.account(q.user)
		}
		if root, problem := l.users.lookup("0"); problem == "" {
			a.rootHome = root.home
		}
		answers <- a
	}
}

// account resolves an exec's user; "" is --user, else the sandbox's rule.
func (l *lookup) account(user string) (account, *failure) {
	if user == "" {
		user = l.user
	}
	var a account
	var problem string
	if user == "" {
		a, problem = l.users.rule(l.imageUser)
	} else {
		a, problem = l.users.lookup(user)
	}
	if l.canSwap {
		if problem != "" {
			return a, &failure{protocol.CodeUserUnknown, problem}
		}
		return a, nil
	}
	self := l.self()
	if user != "" && problem != "" {
		return a, &failure{protocol.CodeUserUnknown, problem}
	}
	if user != "" && a.uid != self.uid {
		return a, &failure{protocol.CodeUserUnknown, "user " + strconv.Quote(user) +
			": the container runs as user " + self.label() + " without the right to switch to another"}
	}
	return self, nil
}

// primaryAccount is whom Docker would run the image's entrypoint and the main command as.
func (l *lookup) primaryAccount() (account, *failure) {
	if l.user != "" {
		return l.account(l.user)
	}
	if !l.canSwap {
		return l.self(), nil
	}
	a, problem := l.users.image(l.imageUser)
	if problem != "" {
		return a, &failure{protocol.CodeUserUnknown, problem}
	}
	return a, nil
}

func (l *lookup) self() account {
	home, _ := getenv(l.environ, "HOME")
	return l.users.self(home)
}

// isProgram tells whether the entrypoint is an ELF file: it takes the command as its arguments and may never run what
// hands over. A script prepares, and ends in exec "$@".
func (l *lookup) isProgram(entrypoint []string) bool {
	paths, problem := candidates(entrypoint, l.environ)
	if problem != nil {
		return false
	}
	for _, path := range paths {
		file, err := openRegular(join(l.workdir, path))
		if err != nil || !file.open {
			continue
		}
		defer file.close()
		if file.Mode&0o111 != 0 {
			return string(file.start(4)) == "\x7fELF"
		}
	}
	return false
}
