package pid1

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// An image's entrypoint usually ends in exec "$@", often by way of sudo or gosu, which close
// descriptors and drop variables. The arguments that it gets are "agbox-init handover", which tells
// PID 1 by connecting to a socket in the abstract namespace of the container's network: nothing has
// to be inherited for that. PID 1 closes the connection once it has taken note.
const handoverSocket = "@agbox-handover"

// listenHandover returns a listening socket.
func listenHandover() (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: handoverSocket}); err == nil {
		err = syscall.Listen(fd, 4)
	}
	if err != nil {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

// acceptHandovers passes on the connections, for as long as PID 1 lives.
func acceptHandovers(listener int, handovers chan<- int) {
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC)
		switch err {
		case nil:
			handovers <- fd
		case syscall.EINTR, syscall.ECONNABORTED:
		default:
			kernel.Warn("handover socket: " + err.Error())
			return
		}
	}
}

// HandOver is the mode "handover": tell PID 1, then become the command. Without a command it
// stays, as an entrypoint may run it as a child and take down what it has set up when it ends.
func HandOver(args []string) {
	if fd, err := kernel.Dial(handoverSocket); err != nil {
		kernel.Warn("handover: PID 1 does not listen: " + err.Error())
	} else {
		syscall.Read(fd, make([]byte, 1))
		syscall.Close(fd)
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		<-end
		os.Exit(0)
	}
	problem := become(args, os.Environ())
	kernel.Warn(problem.message)
	os.Exit(problem.exitCode())
}

// become makes this process the command, as launch has a child become one; it returns when that is not possible.
func become(argv, env []string) *failure {
	paths, problem := candidates(argv, env)
	if problem != nil {
		return problem
	}
	dir, _ := syscall.Getwd()
	last, refused := syscall.ENOENT, ""
	for _, path := range paths {
		errno, _ := syscall.Exec(path, argv, env).(syscall.Errno)
		switch errno {
		case syscall.ENOENT, syscall.ENOTDIR:
			if syscall.Access(path, 0) == nil {
				return programFailure(errno, path, argv[0], dir, "")
			}
		case syscall.EACCES:
			if refused == "" {
				last, refused = errno, path
			}
		default:
			return programFailure(errno, path, argv[0], dir, "")
		}
	}
	if fd, err := syscall.Open(refused, kernel.PathOnly|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err == nil {
		syscall.Close(fd)
		last = syscall.EISDIR
	}
	return programFailure(last, refused, argv[0], dir, searchPath(env))
}
