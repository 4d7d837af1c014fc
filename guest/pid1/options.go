package pid1

import (
	"strconv"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/paths"
)

type options struct {
	socket     string
	user       string
	imageUser  string
	workdir    string
	own        bool     // what is mounted on the workspace is the sandbox's own
	tmpfs      []string // where memory is mounted
	stopGrace  time.Duration
	maxOutput  uint64 // of the primary's own command, 0: no limit
	headroom   uint64 // what output leaves of the disk, in bytes
	startLimit time.Duration
	entrypoint []string
	command    []string
}

func parseOptions(args []string) (o options, problem string) {
	o = options{socket: "/.agbox/run/s", workdir: paths.Workspace, stopGrace: 2 * time.Second, startLimit: startLimit}
	var words []string
	entrypointWords := -1 // all
	for i, arg := range args {
		if arg == "--" {
			words = args[i+1:]
			break
		}
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--socket":
			o.socket = value
		case "--user":
			o.user = value
		case "--image-user":
			o.imageUser = value
		case "--workdir":
			o.workdir = value
		case "--own-workspace":
			o.own = true
		case "--tmpfs":
			o.tmpfs = append(o.tmpfs, value)
		case "--stop-grace", "--start-limit":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return o, arg + ": not a duration, such as 2s"
			}
			if name == "--stop-grace" {
				o.stopGrace = d
			} else {
				o.startLimit = d
			}
		case "--max-output", "--disk-headroom":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return o, arg + ": not a number of bytes"
			}
			if name == "--max-output" {
				o.maxOutput = n
			} else {
				o.headroom = n
			}
		case "--entrypoint-words":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return o, arg + ": not a number of words"
			}
			entrypointWords = n
		default:
			return o, arg + ": no such option"
		}
	}
	if !strings.HasPrefix(o.workdir, "/") {
		return o, "--workdir=" + o.workdir + ": must be absolute"
	}
	if entrypointWords > len(words) {
		return o, "--entrypoint-words=" + strconv.Itoa(entrypointWords) + ": only " + strconv.Itoa(len(words)) + ` words follow "--"`
	}
	if entrypointWords < 0 {
		entrypointWords = len(words)
	}
	o.entrypoint, o.command = words[:entrypointWords], words[entrypointWords:]
	return o, ""
}
