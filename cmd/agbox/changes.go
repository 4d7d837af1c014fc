package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/agbox-dev/agbox/sdk"
)

// changesFlags say what is done with a sandbox's changes.
type changesFlags struct {
	apply, yes, overwrite, outside, tar bool
}

func (a fileCommands) changesCommand() *cobra.Command {
	var f changesFlags
	cmd := &cobra.Command{
		Use:   "changes SANDBOX [TARGET]",
		Short: "Show what a sandbox changed in its copy-on-write mounts, or take it over",
		Long: `List how the copy-on-write mounts of a sandbox (--mount SRC:DST:cow, builtin tools) differ from this
host's files. TARGET is where one of them is in the sandbox.

With --apply the host's files are brought to what the sandbox has, after a question. What the host
changed since the sandbox was made is a conflict: it is named and left, and the exit code is 1. So
is what has no place on a host: pipes, sockets, devices, links that lead out of the mount. Read the
list first: a sandbox can write what the host runs, such as .git/hooks.

Pause or stop a sandbox that is at work before its changes are applied.`,
		Example: `  agbox changes my-sandbox
  agbox changes my-sandbox /workspace --apply
  agbox changes my-sandbox /workspace --tar | tar -t`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.RangeArgs(1, 2)(cmd, args); err != nil {
				return err
			}
			switch {
			case !f.apply && (f.yes || f.overwrite || f.outside):
				return errors.New("--yes, --overwrite and --outside-links go with --apply")
			case f.apply && f.tar:
				return errors.New("--apply or --tar: choose one")
			case f.tar && len(args) < 2:
				return errors.New("--tar needs TARGET")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.apply, "apply", false, "bring the host's files to what the sandbox has")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.overwrite, "overwrite", false, "also what the host changed since the sandbox was made, whose version is lost")
	flags.BoolVar(&f.outside, "outside-links", false, "also symbolic links that lead out of the mount")
	flags.BoolVar(&f.tar, "tar", false, "write what was added and changed to standard output as a tar stream")
	cmd.RunE = a.with(func(ctx context.Context, c *sdk.Client, args []string) error {
		if f.tar {
			stream, err := c.ChangesTar(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			defer stream.Close()
			_, err = io.Copy(a.out, stream)
			return err
		}
		return a.changes(ctx, c, args[0], args[1:], f)
	})
	return cmd
}

// maxApplied bounds how many changes are kept in mind for a question.
const maxApplied = 1_000_000

func (a fileCommands) changes(ctx context.Context, c *sdk.Client, id string, targets []string, f changesFlags) error {
	var mounts []sdk.ChangedMount
	var all []sdk.Change
	out := bufio.NewWriter(a.out)
	list := c.Changes(ctx, id, sdk.WithTargets(targets...), sdk.WithMounts(func(m sdk.ChangedMount) { mounts = append(mounts, m) }))
	for change, err := range list {
		if err == nil {
			err = a.printChange(out, &change)
		}
		if err == nil && f.apply {
			if all = append(all, change); len(all) > maxApplied {
				err = fmt.Errorf("there are more than %d changes: take them with --tar", maxApplied)
			}
		}
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
	}
	if err := out.Flush(); err != nil || !f.apply {
		return err
	}
	switch {
	case len(mounts) > 1:
		var named []string
		for _, m := range mounts {
			named = append(named, m.Target)
		}
		return fmt.Errorf("name the mount to apply, one of %s", strings.Join(named, ", "))
	case len(all) == 0:
		a.say("there is nothing to apply")
		return nil
	}
	return a.applyChanges(ctx, c, id, mounts[0], all, f)
}

func (a fileCommands) applyChanges(ctx context.Context, c *sdk.Client, id string, mount sdk.ChangedMount, all []sdk.Change, f changesFlags) error {
	run := 0
	for i := range all {
		if runByGit(all[i].Path) && all[i].Kind != sdk.ChangeRemoved {
			run++
		}
	}
	if run > 0 {
		a.say("%d of these are hooks or settings of git, which run commands on this host", run)
	}
	if !f.yes {
		fmt.Fprintf(a.err, "apply %d changes to %s? [y/N] ", len(all), fileText(mount.Source))
		answer, err := bufio.NewReader(a.in).ReadString('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			return errors.New("nothing was applied")
		}
	}
	var opts []sdk.ApplyOption
	if f.overwrite {
		opts = append(opts, sdk.WithOverwrite())
	}
	if f.outside {
		opts = append(opts, sdk.WithOutsideLinks())
	}
	left, err := c.ApplyChanges(ctx, id, all, opts...)
	conflict := false
	for _, l := range left {
		conflict = conflict || l.Change.Conflict
		a.say("left: %s: %s", fileText(path.Join(mount.Source, l.Change.Path)), fileText(l.Reason))
	}
	if err != nil {
		return fmt.Errorf("the changes were not applied to their end: %w", err)
	}
	if conflict && !f.overwrite {
		a.say("hint: --overwrite takes the sandbox's version of what the host changed, too")
	}
	if len(left) > 0 {
		return fmt.Errorf("%d of %d changes were left", len(left), len(all))
	}
	return nil
}

// runByGit reports whether git would run what is in the file, or what the file says.
func runByGit(p string) bool {
	parts := strings.Split(p, "/")
	for i, part := range parts[:len(parts)-1] {
		if part == ".git" || i > 0 && parts[i-1] == "modules" {
			switch next := parts[i+1]; next {
			case "hooks", "config", "config.worktree":
				return true
			}
		}
	}
	return false
}

// changeLine is a change as JSON.
type changeLine struct {
	Target     string    `json:"target"`
	Path       string    `json:"path"`
	PathBytes  []byte    `json:"path_bytes,omitempty"` // where path is not UTF-8
	Kind       string    `json:"kind"`
	Type       string    `json:"type"`
	OldType    string    `json:"old_type,omitempty"`
	Size       uint64    `json:"size_bytes"`
	Mode       uint32    `json:"mode"`
	ModifiedAt time.Time `json:"modified_at"`
	LinkTarget string    `json:"link_target,omitempty"`
	Conflict   bool      `json:"conflict"`
	Problem    string    `json:"problem,omitempty"`
}

var specialModes = map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky}

func (a fileCommands) printChange(out io.Writer, c *sdk.Change) error {
	mode := uint32(c.Mode.Perm())
	for bit, flag := range specialModes {
		if c.Mode&flag != 0 {
			mode |= bit
		}
	}
	if a.json {
		line := changeLine{Target: c.Mount.Target, Path: c.Path, Kind: c.Kind, Type: c.Type, OldType: c.OldType, Size: c.Size, Mode: mode,
			ModifiedAt: c.ModifiedAt.UTC(), LinkTarget: c.LinkTarget, Conflict: c.Conflict, Problem: c.Problem}
		if !utf8.ValidString(c.Path) {
			line.PathBytes = []byte(c.Path)
		}
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		_, err = out.Write(append(text, '\n'))
		return err
	}
	text := fmt.Sprintf("%-7s  %-9s  %04o  %10d  %s", c.Kind, c.Type, mode, c.Size, fileText(path.Join(c.Mount.Target, c.Path)))
	if c.Type == sdk.FileSymlink && c.Kind != sdk.ChangeRemoved {
		text += " -> " + fileText(c.LinkTarget)
	}
	if c.OldType != "" {
		text += ", which was a " + c.OldType
	}
	if c.Conflict {
		text += "  [conflict: the host changed it, too]"
	}
	if c.Problem != "" {
		text += "  [cannot be taken: " + c.Problem + "]"
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
