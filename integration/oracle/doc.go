// Package oracle computes what the counts must be, and compares. It reads the topics, as they are in Kafka, and MySQL,
// and returns differences: none if all is well.
//
// It shares nothing with the program but the wire contracts: it reads the log itself (plain assignment, no groups),
// decodes with the generated Protobuf code and by hand, and folds one event at a time with plain maps. Where the
// program is fast, the oracle is simple.
//
//	I1  every count in MySQL, and every hourly figure, is the fold of the log up to MySQL's position
//	I2  the state table is the fold at its progress, and each post's counts there are those of its pairs
//	I3  the position in MySQL never goes back, except by a failover; seq has no gap, and matches its offset
//	I4  every event that was acknowledged to a client is in the log, at its acknowledged offset
//	I5  the deltas of like-updates (read_committed) sum up to the fold, by post, region and minute
//	I6  each invalid event is in likes.dlt once, each misrouted event is in its right partition once
//	I7  what a reader says of every post, at rest: counts, likers and reactions are the fold of the whole log
//	I8  what a reader says while events arrive is the fold of exactly the part of the log that its as_of names
//	I9  in each snapshot of MySQL, the sums of a partition's like_count and like_hourly are the fold at its position
//
// An Oracle reads each record once, however many checks it makes: it keeps its state between checks.
//
//	file              contents
//	event.go          decoding records of likes
//	fold.go           the current reaction of each user on each post
//	updates.go        like-updates: sums, seq, positions
//	table.go          the state table
//	database.go       MySQL
//	ledger.go         acknowledged events, dead letters, forwarded events
//	log.go            reading topics
//	oracle.go         the check of all of these
//	reader.go         the check of a reader at rest
//	reader_watch.go   recording what a reader says while events arrive, and checking it afterwards
//	reader_stream.go  the same for a reader's live stream
//	reader_answer.go  what a reader must say
//	reader_ask.go     the HTTP client of a reader
package oracle
