package browser_test

import (
	"os"
	"testing"

	"kudos/integration/stack"
)

// shared are the servers that the tests of this package have in common.
var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
