// Package sql stores the counts in MySQL (MariaDB >= 10.11, MySQL >= 8.0) exactly once, and the latest rankings.
//
// Store.Apply takes a range of the like-updates log, reduced to one net delta per post, and writes three tables:
// like_count, like_hourly and applied_offset, the offset up to which the log is applied. One transaction writes all
// three, and its first statement moves applied_offset by compare-and-swap. The log is immutable, so every process
// computes the same deltas for a range, and the compare-and-swap lets only one of them commit. A second process, a
// zombie, a repeated call and a lost answer to COMMIT are therefore all harmless.
//
//	read position ──► apply [from,to) ──► apply [to,…) ──► …
//	     ▲                 │ position moved, or outcome of COMMIT unknown
//	     └─────────────────┘
//
// Where to start reading:
//   - apply.go: what one transaction does, its isolation, retries and statements, and what a failed COMMIT means;
//   - position.go: where to resume, and what happens on an empty or damaged database;
//   - ranking.go: the ranking tables, which follow the topic trending;
//   - snapshot.go, shadow.go: reading all tables at one point in time, and replacing them atomically;
//   - errors.go: which failures are transient, and what to do about the others;
//   - shards.go, options.go: several databases that share the partitions, and how each records which shard it is;
//   - migrate.go: the tables, created by `kudos migrate` and checked at startup.
//
// Non-obvious:
//   - Reading the position takes the row lock. It therefore waits for a transaction whose outcome is unknown instead of
//     reading past it.
//   - On a pooled connection with an open transaction, START TRANSACTION would commit it. A connection therefore
//     returns to the pool only after the server confirmed a COMMIT or ROLLBACK.
//   - A lock wait timeout rolls back the statement, not the transaction. Every failure therefore rolls back explicitly.
package sql
