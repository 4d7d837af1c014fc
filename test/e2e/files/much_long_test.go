//go:build long

package files_test

import (
	"testing"
)

func TestLongManyFiles(t *testing.T) {
	t.Parallel()
	manyFiles(t, 5000)
}
