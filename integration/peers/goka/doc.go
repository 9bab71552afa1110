// Command goka is peer (b): likes counted with stock goka (lovoo/goka, on sarama), as its users write it and at its best:
// one message a callback, SetValue, stores on LevelDB.
//
// In comes the topic likes, keyed by post. SetValue writes the message's key only, so an action first becomes a message
// that is keyed by its pair (post, user):
//
//	likes ─► goka-pairs ──loop──► goka-pairs ─► goka-deltas ─► goka-counts ─► peer.Counts ─► MySQL
//	          re-keys             latest action   +1, −1        count
//	                              of each pair    by post       of each post
//
// The loop topic of goka-pairs does what a processor of its own for re-keying would do, with one group, producer and
// consumer less. Every message is acknowledged by all replicas and offsets are committed after that; those of
// goka-deltas after the count is in MySQL. A crash between SetValue's local write and the commit can still lose or
// repeat a delta, which is the design's: a message is delivered at least once, and a delta is not idempotent.
//
//	file          what is in it
//	main.go       from start to end
//	processors.go the two groups
//	config.go     what is not as goka has it by default, and why
//	codec.go      values
//	progress.go   how many events are counted
//	state.go      how large the state is
package main
