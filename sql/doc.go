// Package sql keeps the counts in MySQL (MariaDB >= 10.11, MySQL >= 8.0), exactly once, and the newest rankings.
//
// Store.Apply takes a range of the like-updates log, collapsed to one net change a post, and writes three tables:
// like_count, like_hourly, and applied_offset, which tells up to where the log has been applied. One transaction writes
// all three, and its first statement moves applied_offset by compare-and-swap. The changes of a range come from an
// immutable log, so whoever applies it applies the same, and the compare-and-swap lets it happen once: a second
// process, a zombie, a repeated call and a commit whose answer was lost are all harmless.
//
//	read position ──► apply [from,to) ──► apply [to,…) ──► …
//	     ▲                 │ position moved, or outcome of COMMIT unknown
//	     └─────────────────┘
//
// Where to start reading:
//   - apply.go: what a transaction does;
//   - position.go: where to go on, and what happens on an empty or a damaged database;
//   - ranking.go, ranking_table.go: the tables of the topic trending, replaced by what it says newest;
//   - transaction.go: its isolation, retries, statements, and what a failed COMMIT means;
//   - snapshot.go, shadow.go: the tables as of one moment, and new ones in their place;
//   - errors.go: which failures pass by themselves, and what to do about the others;
//   - shards.go, shard.go, dsns.go: several databases that share the partitions, and how each says which of them it is;
//   - migrate.go, schema.go: the tables, created by `kudos migrate` and checked at start.
//
// Non-obvious:
//   - Reading the position takes the row lock. So it waits for a transaction whose outcome is unknown, rather than
//     reading past it.
//   - On a pooled connection with an open transaction, START TRANSACTION would commit it. So a connection goes back
//     to the pool only after a COMMIT or ROLLBACK that the server confirmed.
//   - A lock wait timeout rolls back a statement, not the transaction. So every failure rolls back explicitly.
package sql
