package server

import (
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/text"
)

// maxAnswer is the size in bytes of the messages that a client of gRPC takes unless it says otherwise. Large elements of a list
// never make it larger; more small ones than that can, for who asks for all of them.
const maxAnswer = 4 << 20

// roomForWhole is up to how many bytes a list holds its elements whole; after that large ones are elided.
const (
	roomForWhole = maxAnswer / 2
	largeElement = 1 << 10
)

// execList collects execs for an answer.
type execList struct {
	execs []*agboxv1.ExecStatus
	size  int
}

func (l *execList) add(status *agboxv1.ExecStatus) {
	size := proto.Size(status)
	if size > largeElement && l.size+size > roomForWhole {
		elideExec(status)
		size = proto.Size(status)
	}
	l.execs = append(l.execs, status)
	l.size += size
}

// What is left of a command: enough to know it by.
const (
	elidedWords = 8
	elidedWord  = 64
)

func elideExec(status *agboxv1.ExecStatus) {
	words := status.Command
	status.Elided, status.EnvOverrides, status.Command = true, nil, nil
	for i, word := range words {
		if i == elidedWords {
			status.Command = append(status.Command, "…")
			break
		}
		status.Command = append(status.Command, text.Bound(word, elidedWord))
	}
}

// elideHandles does so where the list is too large otherwise. The services' specs are not the handles' own.
func elideHandles(list *agboxv1.ListSandboxesResponse) {
	if proto.Size(list) <= maxAnswer {
		return
	}
	for _, handle := range list.Sandboxes {
		if services := len(handle.RequiredServices) + len(handle.OptionalServices); services > 0 && proto.Size(handle) > largeElement {
			handle.Elided = true
			handle.RequiredServices, handle.OptionalServices = elideServices(handle.RequiredServices), elideServices(handle.OptionalServices)
		}
	}
}

func elideServices(services []*agboxv1.ServiceSpec) []*agboxv1.ServiceSpec {
	var list []*agboxv1.ServiceSpec
	for _, service := range services {
		list = append(list, &agboxv1.ServiceSpec{Name: service.Name, Image: service.Image})
	}
	return list
}
