// Package simulation runs the program's own workers (fold, transactions, claims, local stores, MySQL store) against
// models of Kafka, MySQL, time and the scheduler: in one process, one step at a time, in an order that a seed
// determines. A run passes, or reports a violation of what the design promises, which the same seed reproduces. A
// failing schedule is reduced to a short script that can be kept (testdata/*.txt).
//
//	schedule.go   a schedule: setup, faults, calm, drain, final check
//	world.go      actors (a partition's worker is one) and the scheduler
//	faults.go     what can happen: crashes, zombies, lost responses, failover …, and to what, if a seed decides
//	script.go     a schedule as a list of what happens, and as text
//	record.go     records the script of a seed, and plays scripts
//	reduce.go     shortens a failing script
//	group.go      consumer groups: members, assignments, zombies
//	process.go    a process with its local stores, and the work on one partition
//	reader.go     a reader with its views
//	reader_ask.go what the reader answers, compared with the oracle's fold up to the answer's position
//	kafka_*.go    logs, transactions and requests of a Kafka cluster
//	mysql_*.go    rows, locks, transactions and statements of a MySQL server
//	events.go     the events that clients write
//	check.go      what must hold at every commit, and in the end by the fold of package oracle
//	parks.go      damage that the program cannot repair: its partition must park, the others continue
//
// Only one actor runs at a time; each call into a model is a step, so a crash or pause can happen before and after it.
package simulation
