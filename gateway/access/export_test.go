package access

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

func KnownCalls() map[string]bool {
	known := map[string]bool{}
	for name := range rules {
		known[name] = true
	}
	return known
}

func KnownFields() map[protoreflect.Name]map[protoreflect.Name]bool {
	known := map[protoreflect.Name]map[protoreflect.Name]bool{}
	for message, grants := range map[protoreflect.Name]map[protoreflect.Name]Grant{"CreateSpec": specGrants, "ServiceSpec": serviceGrants} {
		known[message] = map[protoreflect.Name]bool{}
		for name := range grants {
			known[message][name] = true
		}
	}
	return known
}

func Identify(t *Tokens, secret string) (Identity, error) { return t.identify(secret) }
