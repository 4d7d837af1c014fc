package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// failure is why a command could not be run, in the words of a Result.
type failure struct{ code, message string }

func (f *failure) exitCode() int {
	if f.code == initproto.CodeCommandNotFound {
		return 127
	}
	return 126
}

// environment is base with overrides on top, for the given account. HOME and USER that are root's
// are replaced by the account's own, unless an override sets them.
func environment(base, overrides []string, a account, rootHome string) ([]string, *failure) {
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
	if home := value("HOME"); home == "" || a.uid != 0 && (home == rootHome || home == "/root") {
		set("HOME="+a.home, "HOME")
	}
	if user := value("USER"); user == "" || a.uid != 0 && user == "root" {
		set("USER="+a.label(), "USER")
	}
	for _, entry := range overrides {
		key, _, ok := strings.Cut(entry, "=")
		if !ok || key == "" || strings.IndexByte(entry, 0) >= 0 {
			return nil, &failure{initproto.CodeStartFailed,
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

// directory resolves and checks a command's working directory.
func directory(cwd, workdir string) (string, *failure) {
	dir := join(workdir, cwd)
	var st syscall.Stat_t
	err := syscall.Stat(dir, &st)
	switch {
	case err == syscall.ENOENT:
		return "", cwdFailure(dir, "does not exist")
	case err != nil:
		return "", cwdFailure(dir, err.Error())
	case st.Mode&syscall.S_IFMT != syscall.S_IFDIR:
		return "", cwdFailure(dir, "is not a directory")
	}
	return dir, nil
}

func cwdFailure(dir, why string) *failure {
	return &failure{initproto.CodeCwdInvalid, "cwd: " + strconv.Quote(dir) + " " + why}
}

func join(dir, path string) string {
	switch {
	case path == "":
		return dir
	case path[0] == '/':
		return path
	}
	return strings.TrimRight(dir, "/") + "/" + path
}

// find resolves argv[0] as a shell does: a name with a slash is a path from dir, any other is
// looked for in the PATH of env.
func find(argv, env []string, dir string) (string, *failure) {
	if len(argv) == 0 || argv[0] == "" {
		return "", &failure{initproto.CodeCommandNotFound, "exec: the command is empty"}
	}
	for _, arg := range argv {
		if strings.IndexByte(arg, 0) >= 0 {
			return "", &failure{initproto.CodeStartFailed, "exec: argument " + strconv.Quote(arg) + " holds a NUL byte"}
		}
	}
	name := strconv.Quote(argv[0])
	if strings.IndexByte(argv[0], '/') >= 0 {
		switch err := executable(join(dir, argv[0])); err {
		case nil:
			return argv[0], nil
		case syscall.ENOENT, syscall.ENOTDIR:
			return "", &failure{initproto.CodeCommandNotFound, "exec: " + name + " does not exist (cwd " + dir + ")"}
		default:
			return "", notExecutable(name, err)
		}
	}
	path, ok := getenv(env, "PATH")
	if !ok {
		path = defaultPath
	}
	var refused *failure
	for _, d := range strings.Split(path, ":") {
		if d == "" {
			d = "."
		}
		candidate := join(d, argv[0])
		switch err := executable(join(dir, candidate)); err {
		case nil:
			return candidate, nil
		case syscall.EACCES, syscall.EISDIR:
			if refused == nil {
				refused = notExecutable(strconv.Quote(candidate), err)
			}
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", &failure{initproto.CodeCommandNotFound, "exec: " + name + " is not in PATH (" + path + ")"}
}

func executable(path string) error {
	var st syscall.Stat_t
	switch err := syscall.Stat(path, &st); {
	case err != nil:
		return err
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return syscall.EISDIR
	case st.Mode&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}

func notExecutable(name string, err error) *failure {
	why := err.Error()
	switch err {
	case syscall.EISDIR:
		why = "it is a directory"
	case syscall.EACCES:
		why = "no permission to execute it (is it chmod +x?)"
	}
	return &failure{initproto.CodeCommandNotExecutable, "exec: " + name + " cannot be executed: " + why}
}

// startFailure explains why fork or exec failed, when all that can be checked before was right.
func startFailure(err error, path, dir string, a account) *failure {
	name := strconv.Quote(path)
	switch err {
	case syscall.EACCES:
		if !searchable(dir, a) {
			return cwdFailure(dir, "may not be entered by user "+a.label())
		}
		return notExecutable(name, err)
	case syscall.ENOENT, syscall.ENOTDIR:
		return &failure{initproto.CodeCommandNotExecutable,
			"exec: " + name + " exists, but the interpreter of its #! line, or its loader, does not"}
	case syscall.ENOEXEC:
		return &failure{initproto.CodeCommandNotExecutable,
			"exec: " + name + " is neither a program for this machine nor a script with a #! line"}
	case syscall.E2BIG:
		return &failure{initproto.CodeStartFailed, "exec: " + name + ": arguments and environment are too long"}
	case syscall.EPERM:
		return &failure{initproto.CodeStartFailed, "exec: " + name + " may not be started as user " + a.label() + ": " + err.Error()}
	case syscall.EAGAIN:
		return &failure{initproto.CodeStartFailed, "exec: " + name + ": no further process can be started (pids limit of the sandbox?)"}
	}
	return &failure{initproto.CodeStartFailed, "exec: " + name + " could not be started: " + err.Error()}
}

// searchable tells whether the account may enter dir, by the mode bits of it and all above it.
func searchable(dir string, a account) bool {
	for i := 1; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat(dir[:i], &st) != nil {
			return false
		}
		shift := 0
		if st.Uid == a.uid {
			shift = 6
		} else if st.Gid == a.gid || slices.Contains(a.groups, st.Gid) {
			shift = 3
		}
		if st.Mode>>shift&1 == 0 {
			return false
		}
	}
	return true
}

// launch is all that it takes to start a command.
type launch struct {
	account
	path, dir string
	argv, env []string
}

// spawn forks and executes the command in a session, and so a process group, of its own, that
// descriptor 0 is the terminal of if there is one.
func (l launch) spawn(files [3]int, switchUser, terminal bool) (int, error) {
	sys := &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
	if switchUser {
		sys.Credential = &syscall.Credential{Uid: l.uid, Gid: l.gid, Groups: l.groups}
	}
	return syscall.ForkExec(l.path, l.argv, &syscall.ProcAttr{
		Dir: l.dir, Env: l.env, Sys: sys,
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
	})
}

// null returns a standard input that is at its end.
func null() int {
	if fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		return fd
	}
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		warn("no standard input for commands: " + err.Error())
		os.Exit(1)
	}
	syscall.Close(ends[1])
	return ends[0]
}
