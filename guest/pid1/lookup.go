package pid1

import (
	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// lookup finds out what has to be read of the sandbox's own files before a command can start. It has a goroutine of its own, as a file
// may not answer; a start that waits for it is given up in time.
type lookup struct {
	options
	environ []string
	account.Rules
}

// identity is what a sandbox that was made ahead has become.
type identity struct {
	options
	environ []string
}

// question is about one start, or tells what the sandbox has become, which is not answered.
type question struct {
	as      *identity
	of      *execution
	user    string
	primary bool
}

// answer is what there is to know, or why that is not known.
type answer struct {
	question
	account.Account
	rootHome string
	program  bool // the image's entrypoint is a program and no script
	problem  *failure
}

// run answers one question after the other, for as long as init lives.
func (l *lookup) run(questions <-chan question, answers chan<- answer) {
	made := false
	for q := range questions {
		if q.as != nil {
			l.options, l.environ, l.User = q.as.options, q.as.environ, q.as.user
			continue
		}
		if !made && l.Refresh() == nil {
			if a, problem := l.Of(""); problem == "" {
				account.MakePlaces(l.tmpfs, l.workdir, l.own, a)
			} else {
				kernel.Warn(problem)
			}
			made = true
		}
		a := answer{question: q}
		problem := ""
		if q.primary {
			a.program = len(l.entrypoint) > 0 && l.isProgram(l.entrypoint)
			a.Account, problem = l.Primary()
		} else {
			a.Account, problem = l.Of(q.user)
		}
		if problem != "" {
			a.problem = &failure{protocol.CodeUserUnknown, problem}
		}
		a.rootHome = l.RootHome()
		answers <- a
	}
}

// isProgram tells whether the entrypoint is an ELF file: it takes the command as its arguments and may never run what
// hands over. A script prepares, and ends in exec "$@".
func (l *lookup) isProgram(entrypoint []string) bool {
	paths, problem := candidates(entrypoint, l.environ)
	if problem != nil {
		return false
	}
	for _, path := range paths {
		file, err := kernel.OpenRegular(kernel.Join(l.workdir, path))
		if err != nil || !file.Open {
			continue
		}
		defer file.Close()
		if file.Mode&0o111 != 0 {
			return string(file.Start(4)) == "\x7fELF"
		}
	}
	return false
}
