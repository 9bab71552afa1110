// Package simulation runs the program's own workers (fold, transactions, claims, local stores, MySQL store) against
// models of Kafka, MySQL, time and the scheduler: all in one process, one step at a time, in an order that a seed
// decides. In goes a seed; out comes nothing, or a violation of what the design promises, which the same seed shows
// again. A schedule that fails is reduced to a short script, which can be kept (testdata/*.txt).
//
//	schedule.go   a schedule: setup, faults, calm, drain, verdict
//	world.go      actors (a partition's worker is one) and the scheduler
//	faults.go     what can happen: crashes, zombies, lost answers, failover, compaction …
//	draw.go       which of it happens next, and to whom, if a seed decides
//	script.go     a schedule as a list of what happens, and as text
//	record.go     writes the script of a seed, and plays scripts
//	reduce.go     makes a failing script short
//	group.go      consumer groups: members, assignments, zombies
//	process.go    a process with its local stores, and the work on one partition
//	kafka_*.go    logs, transactions and requests of a Kafka cluster
//	mysql_*.go    rows, locks, transactions and statements of a MySQL server
//	events.go     what writers write
//	check.go      what must hold in the end, by the fold of package oracle, and what at every commit
//	parks.go      damage that no rule repairs: its partition must park, the others go on
//
// Between two steps only one actor runs, and each call into a model is a step: so a crash
// or a pause can fall before and after every one of them.
package simulation
