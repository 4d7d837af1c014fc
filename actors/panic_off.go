//go:build !crashpoints

package actors

// panicPoint is where a build with the tag crashpoints can be made to panic.
func panicPoint() {}
