// Command probe is the only program in the image without a shell: it shows what a command there gets and does
// what a test asks of it.
//
//	probe args [ARG...]        print each argument on a line of its own
//	probe env [NAME...]        print the environment, or the values of the names
//	probe id                   print uid, gid, groups and working directory, one "key=value" a line
//	probe sleep DURATION       do nothing for a while
//	probe burn DURATION        use one processor for a while
//	probe write N [M]          write N bytes to stdout, then M bytes to stderr
//	probe nofile PID N         let a process have N descriptors and no more
//	probe terminals            print how many terminals can be had
//	probe exit CODE            exit with CODE
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say what to do: args, env, id, sleep, burn, write, nofile, terminals or exit")
	}
	verb, args := args[0], args[1:]
	switch {
	case verb == "args":
		for _, a := range args {
			fmt.Println(a)
		}
	case verb == "env" && len(args) == 0:
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
	case verb == "env":
		for _, name := range args {
			fmt.Println(os.Getenv(name))
		}
	case verb == "id":
		return id()
	case verb == "terminals":
		return terminals()
	case len(args) == 0:
		return fmt.Errorf("%s: unknown, or it lacks its argument", verb)
	case verb == "sleep" || verb == "burn":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		if verb == "sleep" {
			time.Sleep(d)
			return nil
		}
		for end := time.Now().Add(d); time.Now().Before(end); {
		}
	case verb == "write":
		for i, out := range []*os.File{os.Stdout, os.Stderr} {
			if i < len(args) {
				if err := write(out, args[i]); err != nil {
					return err
				}
			}
		}
	case verb == "nofile" && len(args) == 2:
		return nofile(args[0], args[1])
	case verb == "exit":
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		os.Exit(code)
	default:
		return fmt.Errorf("%s: unknown", verb)
	}
	return nil
}

func nofile(process, limit string) error {
	pid, err := strconv.Atoi(process)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		return err
	}
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil)
}

func terminals() error {
	for n := 0; ; n++ {
		if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err == unix.ENOSPC {
			fmt.Println(n)
			return nil
		} else if err != nil {
			return err
		}
	}
}

func id() error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	fmt.Printf("uid=%d\ngid=%d\ngroups=%v\ncwd=%s\n", os.Getuid(), os.Getgid(), groups, cwd)
	return nil
}

// write sends size bytes of text in lines of 64.
func write(out io.Writer, size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	line := append(bytes.Repeat([]byte("x"), 63), '\n')
	chunk := bytes.Repeat(line, 1024)
	for n > 0 {
		part := chunk[:min(n, int64(len(chunk)))]
		if _, err := out.Write(part); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}
