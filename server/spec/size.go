package spec

import (
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// How large things may be, in bytes. What is accepted can be started, kept, and sent to any client.
const (
	// maxWord is Linux's own limit of one argument or variable (MAX_ARG_STRLEN, 32 pages), without the NUL at its end.
	maxWord = 128<<10 - 1
	// maxArguments bounds a command with its variables. Linux takes 2 MiB with the usual limit of the stack, of which the
	// image's and the sandbox's variables are a part, too.
	maxArguments = 1 << 20
	// maxPath is Linux's PATH_MAX without the NUL.
	maxPath = 4<<10 - 1
	// maxLabels bounds all labels of a sandbox, which every list has.
	maxLabels = 64 << 10
	// maxSpec is half of what fits into one message.
	maxSpec = 2 << 20
)

// validateArguments refuses what no kernel would start: field is the command's.
func validateArguments(field string, command []string, envs map[string]string) error {
	size := 0
	for _, word := range command {
		size += len(word) + 1
	}
	for key, value := range envs {
		size += len(key) + len(value) + 2
	}
	if size > maxArguments {
		return refuse(ReasonCommandInvalid, field,
			"the command and its variables have %d bytes, which is more than %d; move what is large into a file", size, maxArguments)
	}
	return nil
}

func validateSize(spec *agboxv1.CreateSpec) error {
	if size := proto.Size(spec); size > maxSpec {
		return refuse(ReasonSpecTooLarge, "create_spec", "the whole spec has %d bytes, which is more than %d; move large values into files and mount these", size, maxSpec)
	}
	return nil
}
