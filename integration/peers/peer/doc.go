// Package peer is what the peers of the benchmark have in common: their command line, the lines they print, the reading
// of the topic likes, and the table like_count that they all end with.
//
// In goes the topic, which is full when a peer starts; out come counts in MySQL and one JSON object a line on stdout,
// from which the harness takes the times. A peer is a main function of one line:
//
//	func main() { peer.Main(run) }
//
//	file        what is in it
//	main.go     from the command line to the exit code
//	lines.go    what is printed, and when
//	likes.go    poll batches of events, and the offsets of a consumer group
//	counts.go   absolute counts on their way into like_count, in the background
package peer
