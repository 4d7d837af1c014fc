package files

import (
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ParseEntry reads what agbox-init tells of one file.
func ParseEntry(fields []string) (*agboxv1.FileInfo, error) {
	if len(fields) < 15 || len(fields)%2 == 0 || fields[0] != protocol.FileEntry || !slices.Contains(types, fields[1]) {
		return nil, protocol.ErrMalformed
	}
	var n [6]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(fields[2+i], 10, 64); err != nil {
			return nil, protocol.ErrMalformed
		}
	}
	info := &agboxv1.FileInfo{
		Path: text(fields[8]), Type: fields[1], Mode: uint32(n[0]) & 0o7777, Uid: uint32(n[1]), Gid: uint32(n[2]), Size: uint64(max(n[3], 0)),
		ModifiedAt: timestamppb.New(time.Unix(n[4], n[5])), LinkTarget: text(fields[9]),
		Owner: text(fields[10]), Group: text(fields[11]), ResolvedPath: text(fields[12]),
	}
	if info.ModifiedAt.CheckValid() != nil { // a file system may say anything
		info.ModifiedAt = nil
	}
	if info.ResolvedPath != "" {
		mode, err := strconv.ParseUint(fields[14], 10, 32)
		if err != nil || !slices.Contains(types, fields[13]) {
			return nil, protocol.ErrMalformed
		}
		info.TargetType, info.TargetMode = fields[13], uint32(mode)&0o7777
	}
	for i := 15; i < len(fields); i += 2 {
		if info.Attributes == nil {
			info.Attributes = map[string]string{}
		}
		info.Attributes[text(fields[i])] = text(fields[i+1])
	}
	return info, nil
}

var types = []string{protocol.ItemFile, protocol.ItemDirectory, protocol.ItemSymlink, "other"}

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
	protocol.FileIsDirectory: ErrIsDirectory, protocol.FileExists: ErrExists, protocol.FileDenied: ErrDenied, protocol.FileNoSpace: ErrNoSpace,
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
