// Package bench measures how fast, how soon and at what cost likes are counted: by kudos, and by what people would pick
// instead of it. Every contender is given the same events in a real Kafka topic and must end with the same counts in
// MySQL, or its figures are not reported.
//
// In go servers (a Site), contenders and a Plan; out comes a Report: each run as it was measured, what it was measured
// on, and from that the tables of docs/benchmarks.md. It is part of the program (`kudos bench` measures on servers that
// the user names) and of integration/cmd/bench, which starts real servers and runs all contenders. So it imports
// nothing that only tests may have.
//
//	file            what is in it
//	stream.go       the events, and the counts that must come of them
//	load.go         how they get into Kafka, at once or at a rate
//	site.go         the servers of a run, and what they say of themselves
//	process.go      a child process (see child/) and the lines that it prints; usage.go: what a process costs
//	contender.go    what can be measured; kudos.go and peer.go are the two kinds
//	drain.go        a full topic is counted; check.go: were the counts right?
//	latency.go      events come at a steady rate, probes among them
//	recovery.go     kudos has lost its local state
//	accepting.go    likes come over HTTP, to kudos; producer/ asks and takes the times
//	role.go         a role of kudos that answers by HTTP; reader.go: the one that is asked for counts
//	plan.go         which runs, in which order; progress.go: what a person sees of them
//	report.go       what came out, in JSON; summary.go, targets.go, markdown.go, text.go: for people
//	machine.go      what it ran on
package bench
