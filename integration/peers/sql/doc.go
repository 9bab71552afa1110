// Command sql is peer (d): likes counted in MySQL alone, one transaction a like, at its best.
//
// In comes the topic likes; out come like_pair, which has the last action of each user for each post, and like_count.
// A like is one call of a stored procedure, whose transaction puts the pair, learns under the lock of its row what was
// there before, and moves the count by what that changed.
//
//	Kafka ─► read ─► workers, by pair or post, a connection each ─► CALL take_like(post, user, action)
//	           └──► batches in order, finished ─► offsets
//
// The pair makes redelivery harmless. Offsets are committed when all events before them are.
//
//	file          what is in it
//	main.go       reading, handing out, and what is finished
//	worker.go     a connection and its likes
//	tables.go     the table, the procedure, and how large the state is
package main
