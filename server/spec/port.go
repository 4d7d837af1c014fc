package spec

import (
	"errors"
	"math"
	"net/netip"
	"strconv"

	"github.com/docker/go-connections/nat"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// The engine runs a process for each published port.
const maxPorts = 1000

// validatePorts checks published ports and fills in host_ip and protocol; mode is that of the network.
func validatePorts(field string, ports []*agboxv1.PortSpec, mode string) error {
	switch {
	case len(ports) == 0:
		return nil
	case mode == networkNone:
		return refuse(ReasonPortsWithoutNetwork, field, "ports cannot be published with network mode \"none\"; leave them out or change the mode")
	case len(ports) > maxPorts:
		return refuse(ReasonPortsTooMany, field, "%d ports are more than %d; publish fewer", len(ports), maxPorts)
	}
	for i, p := range ports {
		at := element(field, i)
		if err := validatePort(at, p); err != nil {
			return err
		}
		for j, other := range ports[:i] {
			if samePlace(p, other) {
				return refuse(ReasonPortRepeated, at, "%s is the place of %s already; choose another host_port or leave one out", hostSide(p), element(field, j))
			}
		}
	}
	return nil
}

func validatePort(field string, p *agboxv1.PortSpec) error {
	if !isPort(p.GetContainerPort()) {
		return refuse(ReasonPortInvalid, field+".container_port", "%d is no port; use 1 to %d", p.GetContainerPort(), math.MaxUint16)
	}
	if p.HostPort > math.MaxUint16 {
		return refuse(ReasonPortInvalid, field+".host_port", "%d is no port; use 1 to %d, or 0 to have one chosen", p.HostPort, math.MaxUint16)
	}
	if p.HostIp == "" {
		p.HostIp = "127.0.0.1"
	}
	if addr, err := netip.ParseAddr(p.HostIp); err != nil || !addr.Is4() {
		return refuse(ReasonPortHostIPInvalid, field+".host_ip", "%s is no IPv4 address; write one of the host's, 0.0.0.0 for all, or leave it out for 127.0.0.1", quote(p.HostIp))
	}
	if p.Protocol == "" {
		p.Protocol = "tcp"
	}
	if !isProtocol(p.Protocol) {
		return refuse(ReasonPortProtocolInvalid, field+".protocol", "%s cannot be published; use tcp or udp", quote(p.Protocol))
	}
	return nil
}

// samePlace reports whether a and b cannot both be published.
func samePlace(a, b *agboxv1.PortSpec) bool {
	if a.Protocol != b.Protocol || a.HostPort != b.HostPort {
		return false
	}
	if a.HostPort == 0 {
		return a.ContainerPort == b.ContainerPort && a.HostIp == b.HostIp
	}
	return a.HostIp == b.HostIp || a.HostIp == "0.0.0.0" || b.HostIp == "0.0.0.0"
}

func hostSide(p *agboxv1.PortSpec) string {
	to := strconv.Itoa(int(p.HostPort))
	if p.HostPort == 0 {
		to = "a free port for " + strconv.Itoa(int(p.ContainerPort))
	}
	return p.HostIp + ":" + to + "/" + p.Protocol
}

var errHostPortRange = errors.New("a range of host ports for one port is not supported")

// parsePorts reads Docker's short form, [[IP:]HOST:]PORT[/PROTOCOL], where HOST and PORT may be ranges of one size.
func parsePorts(text string) ([]*agboxv1.PortSpec, error) {
	mappings, err := nat.ParsePortSpec(text)
	if err != nil {
		return nil, err
	}
	var ports []*agboxv1.PortSpec
	for _, m := range mappings {
		host := 0
		if m.Binding.HostPort != "" {
			if host, err = strconv.Atoi(m.Binding.HostPort); err != nil {
				return nil, errHostPortRange
			}
		}
		ports = append(ports, &agboxv1.PortSpec{
			ContainerPort: uint32(m.Port.Int()), HostPort: uint32(host), HostIp: m.Binding.HostIP, Protocol: m.Port.Proto(),
		})
	}
	return ports, nil
}
