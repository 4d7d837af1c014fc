package pid1

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// failure is why a command could not be run, in the words of a Result.
type failure struct{ code, message string }

func (f *failure) exitCode() int {
	if f.code == protocol.CodeCommandNotFound {
		return 127
	}
	return 126
}

// environment is base with overrides on top, for the given account. HOME and USER that are root's
// are replaced by the account's own, unless an override sets them.
func environment(base, overrides []string, a account.Account, rootHome string) ([]string, *failure) {
	env := make([]string, 0, len(base)+len(overrides)+2)
	index := make(map[string]int, cap(env))
	set := func(entry, key string) {
		if i, ok := index[key]; ok {
			env[i] = entry
			return
		}
		index[key] = len(env)
		env = append(env, entry)
	}
	for _, entry := range base {
		if key, _, ok := strings.Cut(entry, "="); ok && key != "" {
			set(entry, key)
		}
	}
	value := func(key string) string {
		if i, ok := index[key]; ok {
			return env[i][len(key)+1:]
		}
		return ""
	}
	if home := value("HOME"); home == "" || a.UID != 0 && (home == rootHome || home == "/root") {
		set("HOME="+a.Home, "HOME")
	}
	if user := value("USER"); user == "" || a.UID != 0 && user == "root" {
		set("USER="+a.Label(), "USER")
	}
	for _, entry := range overrides {
		key, _, ok := strings.Cut(entry, "=")
		if !ok || key == "" || strings.IndexByte(entry, 0) >= 0 {
			return nil, &failure{protocol.CodeStartFailed,
				"environment entry " + strconv.Quote(entry) + " is not NAME=VALUE, or holds a NUL byte"}
		}
		set(entry, key)
	}
	return env, nil
}

func getenv(env []string, key string) (string, bool) {
	for _, entry := range slices.Backward(env) {
		if k, v, _ := strings.Cut(entry, "="); k == key {
			return v, true
		}
	}
	return "", false
}

// candidates are where argv[0] may lie, as a shell has it: a name with a slash is a path from the working directory, any other is
// looked for in the PATH of env.
func candidates(argv, env []string) ([]string, *failure) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, &failure{protocol.CodeCommandNotFound, "exec: the command is empty"}
	}
	for _, arg := range argv {
		if strings.IndexByte(arg, 0) >= 0 {
			return nil, &failure{protocol.CodeStartFailed, "exec: argument " + strconv.Quote(arg) + " holds a NUL byte"}
		}
	}
	if strings.IndexByte(argv[0], '/') >= 0 {
		return argv[:1], nil
	}
	var all []string
	for _, dir := range strings.Split(searchPath(env), ":") {
		if dir == "" {
			dir = "."
		}
		all = append(all, kernel.Join(dir, argv[0]))
	}
	return all, nil
}

func searchPath(env []string) string {
	if path, ok := getenv(env, "PATH"); ok {
		return path
	}
	return defaultPath
}

// startFailure explains a report.
func (l *launch) startFailure(r report) *failure {
	errno := syscall.Errno(r.errno)
	switch r.step {
	case stepUser:
		return &failure{protocol.CodeStartFailed, "exec: " + strconv.Quote(l.argv[0]) + " may not be started as user " + l.Label() + ": " + errno.Error()}
	case stepDirectory:
		why := errno.Error()
		switch errno {
		case syscall.ENOENT:
			why = "does not exist"
		case syscall.ENOTDIR:
			why = "is not a directory"
		case syscall.EACCES:
			why = "may not be entered by user " + l.Label()
		}
		return &failure{protocol.CodeCwdInvalid, "cwd: " + strconv.Quote(l.dir) + " " + why}
	case stepProgram:
		path := ""
		if r.path >= 0 && int(r.path) < len(l.paths) {
			path = l.paths[r.path]
		}
		return programFailure(errno, path, l.argv[0], l.dir, searchPath(l.env))
	}
	return &failure{protocol.CodeStartFailed, "exec: " + strconv.Quote(l.argv[0]) + " could not be started: " + errno.Error()}
}

// programFailure explains what came of the search for a program: path is where it ended, "" when nothing was there.
func programFailure(errno syscall.Errno, path, argv0, dir, search string) *failure {
	name := strconv.Quote(path)
	notExecutable := func(why string) *failure {
		return &failure{protocol.CodeCommandNotExecutable, "exec: " + name + why}
	}
	switch {
	case path == "" && strings.IndexByte(argv0, '/') >= 0:
		return &failure{protocol.CodeCommandNotFound, "exec: " + strconv.Quote(argv0) + " does not exist (cwd " + dir + ")"}
	case path == "":
		return &failure{protocol.CodeCommandNotFound, "exec: " + strconv.Quote(argv0) + " is not in PATH (" + search + ")"}
	}
	switch errno {
	case syscall.EISDIR:
		return notExecutable(" cannot be executed: it is a directory")
	case syscall.EACCES:
		return notExecutable(" cannot be executed: no permission to execute it (is it chmod +x?)")
	case syscall.ENOENT, syscall.ENOTDIR:
		return notExecutable(" exists, but the interpreter of its #! line, or its loader, does not")
	case syscall.ENOEXEC:
		return notExecutable(" is neither a program for this machine nor a script with a #! line")
	case syscall.E2BIG:
		return &failure{protocol.CodeStartFailed, "exec: " + name + ": arguments and environment are too long"}
	}
	return &failure{protocol.CodeStartFailed, "exec: " + name + " could not be started: " + errno.Error()}
}

// forkFailure explains why there is no process for the command.
func forkFailure(err error, argv0 string) *failure {
	name := strconv.Quote(argv0)
	if err == syscall.EAGAIN {
		return &failure{protocol.CodeStartFailed, "exec: " + name + ": no further process can be started (pids limit of the sandbox?)"}
	}
	return &failure{protocol.CodeStartFailed, "exec: " + name + " could not be started: " + err.Error()}
}

// null returns a standard input that is at its end.
func null() int {
	if fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		return fd
	}
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		kernel.Warn("no standard input for commands: " + err.Error())
		os.Exit(1)
	}
	syscall.Close(ends[1])
	return ends[0]
}
