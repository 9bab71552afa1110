package store

import (
	"os"
	"testing"

	"kudos/dev/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
