// Package rebuild makes anew what was made from the stream: like_count, like_hourly
// and applied_offset from the state table, while everything runs; like-updates from
// the state table, and the state table from likes, while the processors are stopped.
//
//	likes ──(--from-events)──► state table ──(--updates)──► like-updates
//	                                │
//	                                └──────► shadow tables ──RENAME──► MySQL
//
// In come Kafka and MySQL, out goes what each step has done. Each can be stopped at
// any point and run again: MySQL changes in one RENAME, and each partition in Kafka in
// one transaction, under the transactional id of its fold. A partition that was done
// is found to be so.
//
//   - rebuild.go: the order of things;
//   - mysql.go: the tables;
//   - stopped.go: what has to hold before Kafka is written to;
//   - updates.go, events.go: a partition of like-updates, of the state table;
//   - loss.go: where the fold goes on when events are lost;
//   - offsets.go: the group's offset, where that alone is wrong;
//   - transaction.go: how they are written.
package rebuild
