// Package schema holds the wire contracts of kudos: what an event, an update and a state-table entry look like as
// bytes, which topics there are, and which partition a post belongs to. Bytes come in and values go out, or the
// reverse; nothing here does I/O, and the package imports nothing else of kudos.
//
// The Protobuf messages are declared in proto/kudos/v1. The hot paths read and write them with protowire directly (no
// allocation, no reflection); tests hold both against the generated code.
package schema

//go:generate go tool -modfile=../tools/go.mod buf generate
