//go:build !crashpoints

package persist

// crashPoint is where a build with the tag crashpoints can be made to die.
func crashPoint() {}
