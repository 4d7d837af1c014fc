package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agbox-dev/agbox/sdk"
	"github.com/docker/go-connections/nat"
	"github.com/docker/go-units"
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

// mounts collects --mount SRC:DST[:rw|:cow].
type mounts []sdk.Mount

func (m *mounts) String() string { return "" }
func (m *mounts) Type() string   { return "SRC:DST[:rw|:cow]" }

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
		case "cow":
			mount.CopyOnWrite = true
		case "ro":
		default:
			return fmt.Errorf("want rw, cow or ro at the end, not %q", parts[2])
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
func (c *copies) Type() string   { return "SRC:DST[:OWNER]" }

func (c *copies) Set(arg string) error {
	source, target, ok := strings.Cut(arg, ":")
	target, owner, owned := strings.Cut(target, ":")
	if !ok || source == "" || target == "" || owned && owner == "" {
		return fmt.Errorf("want %s", c.Type())
	}
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	*c = append(*c, sdk.Copy{Source: source, Target: target, Owner: owner})
	return nil
}

// size is --flag BYTES, such as 512m.
type size int64

func (s *size) String() string { return "" }
func (s *size) Type() string   { return "BYTES" }

func (s *size) Set(arg string) error {
	n, err := units.RAMInBytes(arg)
	if err != nil || n < 0 || n == math.MaxInt64 { // what is too large comes out as either
		return errors.New("want a number of bytes, such as 512m or 1.5GiB")
	}
	*s = size(n)
	return nil
}

// tmpfs collects --tmpfs PATH[:BYTES].
type tmpfs []sdk.Tmpfs

func (t *tmpfs) String() string { return "" }
func (t *tmpfs) Type() string   { return "PATH[:BYTES]" }

func (t *tmpfs) Set(arg string) error {
	path, bytes, sized := strings.Cut(arg, ":")
	var s size
	if sized {
		if err := s.Set(bytes); err != nil {
			return err
		}
	}
	*t = append(*t, sdk.Tmpfs{Target: path, Size: int64(s)})
	return nil
}

// ports collects --publish in Docker's syntax.
type ports []sdk.Port

func (p *ports) String() string { return "" }
func (p *ports) Type() string   { return "[[IP:]HOST:]PORT[/PROTOCOL]" }

func (p *ports) Set(arg string) error {
	mappings, err := nat.ParsePortSpec(arg)
	if err != nil {
		return err
	}
	for _, m := range mappings {
		host := uint64(0)
		if m.Binding.HostPort != "" {
			if host, err = strconv.ParseUint(m.Binding.HostPort, 10, 16); err != nil {
				return fmt.Errorf("want %s with a range for both or none", p.Type())
			}
		}
		*p = append(*p, sdk.Port{ContainerPort: uint16(m.Port.Int()), HostPort: uint16(host), HostIP: m.Binding.HostIP, Protocol: m.Port.Proto()})
	}
	return nil
}

// destinations collects --allow CIDR[:PORT[,PORT...]].
type destinations []sdk.Destination

func (d *destinations) String() string { return "" }
func (d *destinations) Type() string   { return "CIDR[:PORT[,PORT...]]" }

func (d *destinations) Set(arg string) error {
	cidr, list, limited := strings.Cut(arg, ":")
	to := sdk.Destination{CIDR: cidr}
	if limited {
		for word := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(word, 10, 16)
			if err != nil || port == 0 {
				return fmt.Errorf("want %s, and %q is no port", d.Type(), word)
			}
			to.Ports = append(to.Ports, uint16(port))
		}
	}
	*d = append(*d, to)
	return nil
}

// hosts collects --add-host NAME:IP.
type hosts map[string]string

func (h *hosts) String() string { return "" }
func (h *hosts) Type() string   { return "NAME:IP" }

func (h *hosts) Set(arg string) error {
	name, address, ok := strings.Cut(arg, ":")
	if !ok || name == "" || address == "" {
		return fmt.Errorf("want %s", h.Type())
	}
	if *h == nil {
		*h = hosts{}
	}
	(*h)[name] = address
	return nil
}
