package files

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ParseEntry reads what agbox-init tells of one file.
func ParseEntry(fields []string) (*agboxv1.FileInfo, error) {
	if len(fields) != 10 || fields[0] != protocol.FileEntry {
		return nil, protocol.ErrMalformed
	}
	var n [6]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(fields[2+i], 10, 64); err != nil {
			return nil, protocol.ErrMalformed
		}
	}
	return &agboxv1.FileInfo{
		Path: text(fields[8]), Type: fields[1], Mode: uint32(n[0]), Uid: uint32(n[1]), Gid: uint32(n[2]), Size: uint64(n[3]),
		ModifiedAt: timestamppb.New(time.Unix(n[4], n[5])), LinkTarget: text(fields[9]),
	}, nil
}

// ParseEvent reads what agbox-init tells a watcher.
func ParseEvent(fields []string) (*agboxv1.FileEvent, error) {
	if len(fields) != 5 || fields[0] != protocol.FileEvent {
		return nil, protocol.ErrMalformed
	}
	return &agboxv1.FileEvent{Kind: fields[1], Path: text(fields[2]), OldPath: text(fields[3]), Directory: fields[4] != ""}, nil
}

var failureKinds = map[string]error{
	protocol.FileNotFound: ErrNotFound, protocol.FileNotDirectory: ErrNotDirectory, protocol.FileNotEmpty: ErrNotEmpty,
	protocol.FileReadOnly: ErrReadOnly, protocol.FileReserved: ErrReserved, protocol.FileMounted: ErrMounted,
	protocol.FileEscapes: ErrEscapes, protocol.FileMemory: ErrMemory, protocol.FileOwner: ErrOwner,
}

// ParseFailure reads what agbox-init was kept from.
func ParseFailure(fields []string) error {
	if len(fields) != 3 {
		return protocol.ErrMalformed
	}
	kind := failureKinds[fields[1]]
	if kind == nil {
		kind = ErrRefused
	}
	return Refuse(kind, "%s", text(fields[2]))
}
