// Package schema holds the wire contracts of kudos: the encodings of events, updates and state-table entries, the
// topics and their settings, and the partitioning of posts. It converts between bytes and values, does no I/O, and
// imports no other package of kudos.
//
// The Protobuf messages are declared in proto/kudos/v1. Hot paths read and write them directly with protowire (no
// allocation, no reflection); tests compare both with the generated code.
package schema

//go:generate go tool -modfile=../tools/go.mod buf generate
