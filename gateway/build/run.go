package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

const (
	// maxBuild is how long a build may take, and readyFor how long what it starts may take to be ready.
	maxBuild = time.Hour
	// defaultUser is who steps and sandboxes run as, and defaultHome where they begin.
	defaultUser = "user"
	defaultHome = "/home/user"
)

// prepare makes a plain image what programs for E2B expect.
const prepare = `set -e
id -u user >/dev/null 2>&1 || useradd --create-home --shell /bin/bash user 2>/dev/null || adduser -D -h /home/user user
mkdir -p /home/user && chown user:user /home/user
if [ -d /etc/sudoers.d ] && [ ! -e /etc/sudoers.d/user ]; then echo 'user ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/user; chmod 440 /etc/sudoers.d/user; fi
command -v bash >/dev/null || echo 'warning: the image has no bash, which E2B runs commands with: add it'`

// Step is one of a template's, as the wire has it.
type Step struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
}

// Plan is what a build does. The spec is of the sandbox in which it does so, From the snapshot that this begins with, if any.
type Plan struct {
	Spec  sdk.Spec
	From  string
	Steps []Step
	// Labels are the snapshot's, from what the steps have set.
	Labels func(Result) (map[string]string, error)
}

// Result is what the steps have set for what is made of the template.
type Result struct {
	Env           map[string]string
	User, Workdir string
}

type run struct {
	*Builds
	client *sdk.Client
	build  *Build
	plan   Plan
	step   string // what it is at
	box    string
	shell  string
	Result
}

func (r *run) do(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, maxBuild)
	defer cancel()
	r.Result = Result{Env: map[string]string{}, User: defaultUser, Workdir: defaultHome}
	r.tell("info", "making a sandbox of the base")
	r.plan.Spec.MaxDuration, r.plan.Spec.IdleTTL, r.plan.Spec.User = maxBuild, sdk.NeverIdle, "root"
	r.plan.Spec.WorkingDir = "/"
	r.plan.Spec.Lease = &sdk.Lease{}
	box, hold, err := r.client.CreateHeld(ctx, r.plan.Spec, sdk.FromSnapshot(r.plan.From))
	if hold != nil {
		defer hold.Close()
	}
	if box.ID != "" {
		defer func() {
			away, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			if undone := r.client.Delete(away, box.ID, sdk.WithWait(false)); undone != nil {
				r.log.Warn("the sandbox of a build goes with its lease", "sandbox", box.ID, "error", undone)
			}
		}()
	}
	if err != nil {
		return err
	}
	r.box, r.shell = box.ID, "/bin/sh"
	if _, err := r.client.StatFile(ctx, box.ID, "/bin/bash"); err == nil {
		r.shell = "/bin/bash"
	}
	if err := r.command(ctx, "root", prepare); err != nil {
		return fmt.Errorf("the base cannot be prepared: %w", err)
	}
	for i, step := range r.plan.Steps {
		r.step = strconv.Itoa(i + 1)
		r.tell("info", fmt.Sprintf("[%d/%d] %s %s", i+1, len(r.plan.Steps), step.Type, strings.Join(step.Args, " ")))
		if err := r.take(ctx, step); err != nil {
			return err
		}
	}
	r.step = "finalize"
	r.tell("info", "keeping what has come of it")
	labels, err := r.plan.Labels(r.Result)
	if err != nil {
		return err
	}
	_, err = r.client.Snapshot(ctx, box.ID, sdk.SnapshotRequest{ID: r.build.Template, Labels: labels})
	return err
}

func (r *run) take(ctx context.Context, step Step) error {
	arg := func(i int) string {
		if i < len(step.Args) {
			return step.Args[i]
		}
		return ""
	}
	switch step.Type {
	case "RUN":
		user := arg(1)
		if user == "" {
			user = r.User
		}
		return r.command(ctx, user, arg(0))
	case "ENV":
		if len(step.Args)%2 != 0 {
			return errors.New("ENV takes pairs of a name and a value")
		}
		for i := 0; i < len(step.Args); i += 2 {
			r.Env[step.Args[i]] = step.Args[i+1]
		}
		return nil
	case "USER":
		r.User = arg(0)
		return r.command(ctx, "root", `id -u "$AGBOX_BUILD_USER" >/dev/null`, "AGBOX_BUILD_USER", arg(0))
	case "WORKDIR":
		if r.Workdir = arg(0); !path.IsAbs(r.Workdir) {
			r.Workdir = path.Join(defaultHome, arg(0))
		}
		return r.command(ctx, "root", `[ -d "$AGBOX_BUILD_DIR" ] || { mkdir -p "$AGBOX_BUILD_DIR" && chown "$AGBOX_BUILD_USER" "$AGBOX_BUILD_DIR"; }`,
			"AGBOX_BUILD_DIR", r.Workdir, "AGBOX_BUILD_USER", r.User)
	case "COPY":
		return r.copy(ctx, step.FilesHash, arg(0), arg(1), arg(2), arg(3))
	}
	return fmt.Errorf("a step %q is not offered by agbox: use RUN, COPY, ENV, WORKDIR and USER", step.Type)
}

// command runs a line of shell that must succeed, with variables beside those of the template.
func (r *run) command(ctx context.Context, user, line string, more ...string) error {
	env := maps.Clone(r.Env)
	for i := 0; i+1 < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	cwd := r.Workdir
	if user == "root" && r.step == "base" || len(more) > 0 {
		cwd = "/"
	}
	exec, err := r.client.CreateExec(ctx, r.box, []string{r.shell, "-l", "-c", line},
		sdk.WithUser(user), sdk.WithCwd(cwd), sdk.WithEnv(env), sdk.WithMaxLog(64<<20))
	if err != nil {
		return err
	}
	var stdout, stderr lines
	stdout.say = func(line string) { r.tell("info", line) }
	stderr.say = func(line string) { r.tell("warn", line) }
	ended, err := r.client.FollowLogs(ctx, exec, &stdout, &stderr)
	stdout.end()
	stderr.end()
	if err == nil && ended.ExitCode != 0 {
		err = fmt.Errorf("the command ended with exit code %d", ended.ExitCode)
	}
	return err
}

func (r *run) copy(ctx context.Context, hash, src, dest, user, mode string) error {
	what, err := newCopying(src, dest, r.Workdir, mode)
	if err != nil {
		return err
	}
	file, err := r.open(r.build.Owner, hash)
	if err != nil {
		return err
	}
	defer file.Close()
	defer context.AfterFunc(ctx, func() { file.Close() })() // what is unpacked may be much more than was sent, and nothing of it be for here
	if user == "" {
		user = r.User
	}
	reader, writer := io.Pipe()
	var entries int
	rewritten := make(chan error, 1)
	go func() {
		var err error
		entries, err = what.rewrite(file, writer)
		writer.CloseWithError(err)
		rewritten <- err
	}()
	_, err = r.client.UploadTar(ctx, r.box, "/", reader, sdk.WithOwner(user))
	reader.CloseWithError(err)
	if wrong := <-rewritten; wrong != nil && err == nil {
		err = wrong
	}
	if err == nil && entries == 0 {
		err = fmt.Errorf("the source %q is not among the files that were uploaded", src)
	}
	return err
}

func (r *run) tell(level, message string) {
	r.say(r.build, Entry{Level: level, Message: message, Step: r.step})
}

// lines says each line that is written to it.
type lines struct {
	say  func(string)
	part bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		if l.part.Len() < maxMessage {
			l.part.Write(line)
		}
		if whole {
			l.end()
		}
		rest = after
	}
	return len(p), nil
}

// end says what has no end of line.
func (l *lines) end() {
	if l.part.Len() > 0 {
		l.say(strings.ToValidUTF8(strings.TrimSuffix(l.part.String(), "\r"), "\uFFFD"))
	}
	l.part.Reset()
}
