// Package chaos runs the whole system on real servers and breaks them: three Kafka brokers (replication 3, two in sync),
// MariaDB with a replica, several `kudos processor` and a `kudos producer`, with proxies between, and writers that
// remember what was acknowledged to them.
//
// In go how many faults and a seed; out comes a Report. The run is made of episodes: load runs, faults of several kinds
// strike and end, the load stops, the lag goes back to 0, and package oracle compares. The servers live through all of
// the episodes. Which faults strike, in which order and with which victims follows from the seed; when exactly, and how
// the parts meet it, does not: these are real processes.
//
//	file           what is in it
//	options.go     what can be set
//	run.go         the run: start everything, episode after episode
//	episode.go     load, faults, drain, check
//	deck.go        which faults strike when
//	kinds.go       all kinds of fault; kinds_*.go is what each does
//	system.go      the servers
//	unit.go        a process of ours, and who may disturb it
//	network.go     the proxies; commit.go is the one that knows a COMMIT
//	database.go    primary, replica, failover
//	load.go        the writers
//	events.go      what they write
//	torn.go        what Kafka itself breaks, and the remedy
//	watch.go       MySQL's position, as it moves
//	report.go      what is told in the end
package chaos
