// Package files knows what files look like on their way into a sandbox and out of it: tar streams, accounts, paths and
// the records that agbox-init writes. It does not know Docker.
package files
