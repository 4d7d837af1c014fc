package pid1_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for _, tt := range []struct {
		script       string
		code, signal int
	}{
		{"true", 0, 0},
		{"false", 1, 0},
		{"exit 42", 42, 0},
		{"exit 255", 255, 0},
		{"kill -KILL $$", 137, 9},
		{"kill -TERM $$", 143, 15},
		{"kill -SEGV $$", 139, 11},
	} {
		t.Run(tt.script, func(t *testing.T) {
			b.in(t)
			o := b.sh(tt.script)
			if o.ExitCode != tt.code || o.Signal != tt.signal || o.Cancelled || o.ErrorCode != "" {
				t.Fatalf("%+v", o.Result)
			}
			if o.Started.IsZero() || o.Ended.Before(o.Started) || o.MaxRSS <= 0 {
				t.Fatalf("times or usage: %+v", o.Result)
			}
		})
	}
}

func TestCannotRun(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("bin/data", "no program", 0o644)
	b.write("bin/garbage", "\x00\x01\x02", 0o755)
	b.write("bin/script", "#!/bin/nothing\n", 0o755)
	b.start()
	b.sh("mkdir -m 700 /tmp/mine")
	edit := func(f func(*link.ExecSpec)) func(*link.ExecSpec) { return f }
	for name, tt := range map[string]struct {
		argv    []string
		edit    func(*link.ExecSpec)
		code    string
		message string
	}{
		"not found":           {[]string{"foo"}, nil, protocol.CodeCommandNotFound, `exec: "foo" is not in PATH (/bin:/usr/bin)`},
		"not found by path":   {[]string{"/bin/foo"}, nil, protocol.CodeCommandNotFound, `"/bin/foo" does not exist`},
		"empty":               {nil, nil, protocol.CodeCommandNotFound, "empty"},
		"PATH of overrides":   {[]string{"true"}, edit(func(s *link.ExecSpec) { s.Env = []string{"PATH=/a:/b"} }), protocol.CodeCommandNotFound, "(/a:/b)"},
		"no x bit":            {[]string{"/bin/data"}, nil, protocol.CodeCommandNotExecutable, "chmod +x"},
		"no x bit in PATH":    {[]string{"data"}, nil, protocol.CodeCommandNotExecutable, `"/bin/data"`},
		"directory":           {[]string{"/bin"}, nil, protocol.CodeCommandNotExecutable, "directory"},
		"no program":          {[]string{"garbage"}, nil, protocol.CodeCommandNotExecutable, "neither a program"},
		"interpreter":         {[]string{"script"}, nil, protocol.CodeCommandNotExecutable, "interpreter"},
		"NUL":                 {[]string{"echo", "a\x00b"}, nil, protocol.CodeStartFailed, "NUL"},
		"bad environment":     {[]string{"true"}, edit(func(s *link.ExecSpec) { s.Env = []string{"=x"} }), protocol.CodeStartFailed, `"=x"`},
		"no cwd":              {[]string{"true"}, edit(func(s *link.ExecSpec) { s.Cwd = "sub" }), protocol.CodeCwdInvalid, `"/workspace/sub" does not exist`},
		"cwd is a file":       {[]string{"true"}, edit(func(s *link.ExecSpec) { s.Cwd = "/bin/sh" }), protocol.CodeCwdInvalid, "not a directory"},
		"cwd of another":      {[]string{"true"}, edit(func(s *link.ExecSpec) { s.Cwd, s.User = "/tmp/mine", "other" }), protocol.CodeCwdInvalid, "may not be entered by user other"},
		"unknown user":        {[]string{"true"}, edit(func(s *link.ExecSpec) { s.User = "nobody" }), protocol.CodeUserUnknown, `user "nobody"`},
		"unknown group":       {[]string{"true"}, edit(func(s *link.ExecSpec) { s.User = "agbox:wheel" }), protocol.CodeUserUnknown, `group "wheel"`},
		"environment too big": {[]string{"true"}, edit(func(s *link.ExecSpec) { s.Env = []string{"X=" + strings.Repeat("x", 1<<20)} }), protocol.CodeStartFailed, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			b.in(t)
			s := b.spec(tt.argv)
			if tt.edit != nil {
				tt.edit(&s)
			}
			o := b.wait(s)
			want := 126
			if tt.code == protocol.CodeCommandNotFound {
				want = 127
			}
			if o.ErrorCode != tt.code || o.ExitCode != want || !strings.Contains(o.ErrorMessage, tt.message) {
				t.Fatalf("%d %s %q; want %d %s %q", o.ExitCode, o.ErrorCode, o.ErrorMessage, want, tt.code, tt.message)
			}
		})
	}
}

func TestSurroundings(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	for name, tt := range map[string]struct {
		script string
		edit   func(*link.ExecSpec)
		want   string
	}{
		"user agbox":       {"id -u; id -G; echo $HOME $USER", nil, "1000\n1000 20\n/home/agbox agbox\n"},
		"root on demand":   {"id -u; echo $HOME $USER", func(s *link.ExecSpec) { s.User = "root" }, "0\n/root root\n"},
		"number and group": {"id -u; id -G; echo $HOME", func(s *link.ExecSpec) { s.User = "4242:20" }, "4242\n20\n/\n"},
		"cwd":              {"pwd", nil, "/workspace\n"},
		"absolute cwd":     {"pwd", func(s *link.ExecSpec) { s.Cwd = "/home" }, "/home\n"},
		"workdir is ours":  {"touch x && echo yes", nil, "yes\n"},
		"image's env":      {"echo $MARK", nil, "image\n"},
		"overrides":        {"echo $MARK $HOME", func(s *link.ExecSpec) { s.Env = []string{"MARK=mine", "HOME=/h"} }, "mine /h\n"},
		"stdin at its end": {"cat; echo end", nil, "end\n"},
		"own session":      {`read p < /proc/self/stat; set -- $p; test $5 = $$ -o $6 = $$ && echo leader`, nil, "leader\n"},
		"umask":            {"umask", nil, "0022\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b.in(t)
			s := b.spec([]string{"sh", "-c", tt.script})
			if tt.edit != nil {
				tt.edit(&s)
			}
			b.expect(b.wait(s), 0, tt.want)
		})
	}
}

func TestInheritsNoDescriptors(t *testing.T) {
	b := newBox(t).start()
	b.expect(b.run("ls", "/proc/self/fd"), 0, "0\n1\n2\n3\n") // 3 is ls reading it
}

// A change of /etc/passwd is seen by the next command.
func TestUserAppearsLater(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644)
	b.start("--image-user=1234:20")
	b.expect(b.sh("id -u; id -g"), 0, "1234\n20\n")
	b.write("etc/passwd", passwd, 0o644)
	b.expect(b.sh("id -u"), 0, "1000\n")
}

func TestNoPasswd(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("etc/passwd", "", 0o644)
	b.start()
	b.expect(b.sh("id -u; echo $HOME"), 0, "0\n/root\n")
}

func TestManyAtOnce(t *testing.T) {
	b := newBox(t).start()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 4 {
				o := b.sh("echo begin; echo $MARK >&2; head -c 3000 /bin/busybox; echo end")
				if o.ExitCode != 0 || len(o.stdout) != 3010 || o.stderr != "image\n" {
					t.Errorf("%+v: %d bytes, %q", o.Result, len(o.stdout), o.stderr)
				}
			}
		})
	}
	all.Wait()
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	o := b.wait(b.spec([]string{"sleep", "300"}, func(s *link.ExecSpec) { s.Timeout = 20 * time.Millisecond }))
	if o.ExitCode != 143 || !o.TimedOut || !o.Cancelled {
		t.Fatalf("%+v", o.Result)
	}
	o = b.wait(b.spec([]string{"true"}, func(s *link.ExecSpec) { s.Timeout = time.Minute }))
	if o.ExitCode != 0 || o.TimedOut || o.Cancelled {
		t.Fatalf("%+v", o.Result)
	}
}

// Exec of a known id attaches: the command runs once, however often it is asked for.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	s := b.spec([]string{"sh", "-c", "echo once >> /tmp/ran"})
	first := b.wait(s)
	for range 3 { // acknowledged by now
		if again := b.wait(s); again.Result != first.Result {
			t.Fatalf("%+v, then %+v", first, again)
		}
	}
	b.expect(b.sh("cat /tmp/ran"), 0, "once\n")
}

func BenchmarkExecTrue(bench *testing.B) {
	b := newBox(bench).start()
	specs := make([]link.ExecSpec, bench.N)
	shared := b.spec([]string{"true"})
	for i := range specs {
		specs[i] = shared
		specs[i].ID = shared.ID + "-" + time.Duration(i).String()
	}
	bench.ResetTimer()
	for _, s := range specs {
		if _, err := b.link.Exec(bench.Context(), s); err != nil {
			bench.Fatal(err)
		}
		b.link.Ack(s.ID)
	}
	bench.StopTimer()
	bench.Log("after", bench.N, "execs:", b.memory())
}
