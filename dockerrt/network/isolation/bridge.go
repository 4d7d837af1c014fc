package isolation

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// A name of an interface holds 15 bytes: "ab", six letters for the instance, seven of chance.
const (
	bridgePrefix    = "ab"
	instanceLetters = 6
	nameLength      = 15
)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Bridge returns a new name for the bridge of a sandbox. Nobody can guess it, so that an interface of this name is that
// bridge.
func (r *Rules) Bridge() string {
	return r.names + strings.ToLower(rand.Text())[:nameLength-len(r.names)]
}

// Holds reports whether the rules are about the bridge: whether it has a name of this instance.
func (r *Rules) Holds(bridge string) bool {
	return len(bridge) == nameLength && strings.HasPrefix(bridge, r.names)
}
