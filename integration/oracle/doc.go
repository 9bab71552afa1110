// Package oracle works out what the counts must be, and compares. In go the topics, as they are in Kafka, and MySQL;
// out come differences, none if all is well.
//
// It shares nothing with the program but the wire contracts: it reads the log by itself (plain assignment, no groups),
// decodes with the generated Protobuf code and by hand, and folds one event after the other with plain maps. Where the
// program is fast, it is simple.
//
//	I1  every count in MySQL, and every hourly figure, is the fold of the log up to the position that MySQL stands at
//	I2  the state table is the fold at its progress, and each post's counts there are its liked pairs
//	I3  the position in MySQL never goes back, but by a failover; seq has no gap, and belongs to its offset
//	I4  every event that was acknowledged to a writer is in the log, where it was said to be
//	I5  the deltas of like-updates (read_committed) sum up to the fold, by post, region and minute
//	I6  what can be no event is in likes.dlt once, what was misplaced is once in its right partition
//	I7  what a reader says of every post, at rest: counts, likers and reactions are the fold of all of the log
//	I8  what a reader says while things move is the fold of exactly the part of the log that its as_of names
//
// An Oracle reads each record once, however often it is asked: between two checks it remembers.
//
//	file              what is in it
//	event.go          what a record of likes says
//	fold.go           who likes what
//	updates.go        like-updates: sums, seq, positions
//	table.go          the state table
//	database.go       MySQL
//	ledger.go         what was acknowledged, dead letters, forwarded events
//	log.go            reading topics
//	oracle.go         the check of all that
//	reader.go         the check of a reader at rest
//	reader_watch.go   a reader while things move, and the judgement of what it said
//	reader_stream.go  a reader's live stream, to be judged likewise
//	reader_answer.go  what a reader must say
//	reader_ask.go     asking a reader, over HTTP
package oracle
