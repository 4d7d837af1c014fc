package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agbox-dev/agbox/sdk"
)

// pairs collects --flag KEY=VALUE; with inherit, KEY alone takes the value of our own environment.
type pairs struct {
	values  map[string]string
	inherit bool
}

func (p *pairs) String() string { return "" }

func (p *pairs) Type() string {
	if p.inherit {
		return "KEY[=VALUE]"
	}
	return "KEY=VALUE"
}

func (p *pairs) Set(arg string) error {
	key, value, ok := strings.Cut(arg, "=")
	if !ok && p.inherit {
		if value, ok = os.LookupEnv(key); !ok {
			return errors.New("it has no value, and is not set here either")
		}
	}
	if !ok || key == "" {
		return fmt.Errorf("want %s", p.Type())
	}
	if p.values == nil {
		p.values = map[string]string{}
	}
	p.values[key] = value
	return nil
}

// mounts collects --mount SRC:DST[:rw].
type mounts []sdk.Mount

func (m *mounts) String() string { return "" }
func (m *mounts) Type() string   { return "SRC:DST[:rw]" }

func (m *mounts) Set(arg string) error {
	parts := strings.Split(arg, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return fmt.Errorf("want %s", m.Type())
	}
	mount := sdk.Mount{Target: parts[1]}
	if len(parts) == 3 {
		switch parts[2] {
		case "rw":
			mount.Writable = true
		case "ro":
		default:
			return fmt.Errorf("want rw or ro at the end, not %q", parts[2])
		}
	}
	var err error
	if mount.Source, err = filepath.Abs(parts[0]); err != nil {
		return err
	}
	*m = append(*m, mount)
	return nil
}

// copies collects --copy SRC:DST.
type copies []sdk.Copy

func (c *copies) String() string { return "" }
func (c *copies) Type() string   { return "SRC:DST" }

func (c *copies) Set(arg string) error {
	source, target, ok := strings.Cut(arg, ":")
	if !ok || source == "" || target == "" || strings.Contains(target, ":") {
		return fmt.Errorf("want %s", c.Type())
	}
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	*c = append(*c, sdk.Copy{Source: source, Target: target})
	return nil
}
