package ports_test

import (
	"testing"

	"github.com/agbox-dev/agbox/test/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
