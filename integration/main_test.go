package integration

import (
	"os"
	"testing"

	"kudos/integration/stack"
)

// shared are the servers that the tests of this package have in common.
var shared = stack.NewShared(stack.KafkaOptions{ExtraProperties: map[string]string{
	// So that a killed processor is missed soon.
	"group.min.session.timeout.ms": "1000",
}}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
