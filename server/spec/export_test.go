package spec

// WalkCopyLimited is WalkCopy with another bound on the number of entries.
var WalkCopyLimited = walkCopy
