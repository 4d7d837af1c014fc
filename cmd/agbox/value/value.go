// Package value reads the values of flags.
package value

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/docker/go-connections/nat"
	"github.com/docker/go-units"

	"github.com/agbox-dev/agbox/sdk"
)

// Pairs collects --flag KEY=VALUE; with Inherit, KEY alone takes the value of our own environment.
type Pairs struct {
	Values  map[string]string
	Inherit bool
}

func (p *Pairs) String() string { return "" }

func (p *Pairs) Type() string {
	if p.Inherit {
		return "KEY[=VALUE]"
	}
	return "KEY=VALUE"
}

func (p *Pairs) Set(arg string) error {
	key, value, ok := strings.Cut(arg, "=")
	if !ok && p.Inherit {
		if value, ok = os.LookupEnv(key); !ok {
			return errors.New("it has no value, and is not set here either")
		}
	}
	if !ok || key == "" {
		return fmt.Errorf("want %s", p.Type())
	}
	if p.Values == nil {
		p.Values = map[string]string{}
	}
	p.Values[key] = value
	return nil
}

// Mounts collects --mount SRC:DST[:rw|:cow].
type Mounts []sdk.Mount

func (m *Mounts) String() string { return "" }
func (m *Mounts) Type() string   { return "SRC:DST[:rw|:cow]" }

func (m *Mounts) Set(arg string) error {
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

// Copies collects --copy SRC:DST.
type Copies []sdk.Copy

func (c *Copies) String() string { return "" }
func (c *Copies) Type() string   { return "SRC:DST[:OWNER]" }

func (c *Copies) Set(arg string) error {
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

// Size is --flag BYTES, such as 512m.
type Size int64

func (s *Size) String() string { return "" }
func (s *Size) Type() string   { return "BYTES" }

func (s *Size) Set(arg string) error {
	n, err := units.RAMInBytes(arg)
	if err != nil || n < 0 || n == math.MaxInt64 { // what is too large comes out as either
		return errors.New("want a number of bytes, such as 512m or 1.5GiB")
	}
	*s = Size(n)
	return nil
}

// Tmpfs collects --tmpfs PATH[:BYTES].
type Tmpfs []sdk.Tmpfs

func (t *Tmpfs) String() string { return "" }
func (t *Tmpfs) Type() string   { return "PATH[:BYTES]" }

func (t *Tmpfs) Set(arg string) error {
	path, bytes, sized := strings.Cut(arg, ":")
	var s Size
	if sized {
		if err := s.Set(bytes); err != nil {
			return err
		}
	}
	*t = append(*t, sdk.Tmpfs{Target: path, Size: int64(s)})
	return nil
}

// Ports collects --publish in Docker's syntax.
type Ports []sdk.Port

func (p *Ports) String() string { return "" }
func (p *Ports) Type() string   { return "[[IP:]HOST:]PORT[/PROTOCOL]" }

func (p *Ports) Set(arg string) error {
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

// Destinations collects --allow CIDR[:PORT[,PORT...]].
type Destinations []sdk.Destination

func (d *Destinations) String() string { return "" }
func (d *Destinations) Type() string   { return "CIDR[:PORT[,PORT...]]" }

func (d *Destinations) Set(arg string) error {
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

// Hosts collects --add-host NAME:IP.
type Hosts map[string]string

func (h *Hosts) String() string { return "" }
func (h *Hosts) Type() string   { return "NAME:IP" }

func (h *Hosts) Set(arg string) error {
	name, address, ok := strings.Cut(arg, ":")
	if !ok || name == "" || address == "" {
		return fmt.Errorf("want %s", h.Type())
	}
	if *h == nil {
		*h = Hosts{}
	}
	(*h)[name] = address
	return nil
}
