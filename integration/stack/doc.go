// Package stack runs real servers for tests: Apache Kafka in KRaft mode, MariaDB and MySQL, each on free loopback ports
// with its data in a temporary directory.
//
// In goes a description (KafkaOptions, DatabaseOptions); out comes a running server that answers, with the address to
// reach it by. A test may kill, stop, pause and start it again on the same data and ports, through Server. Nothing is
// shared with servers that run on this machine already, and nothing stays: Close kills the processes and removes their
// data, and if the test dies before Close, the kernel kills them.
//
//	file          what is in it
//	kafka.go      a cluster of one or three nodes, from formatting to Close
//	kafka_secure.go  a listener that asks who is there; authority.go: certificates
//	topics.go     what tests ask of a cluster: back to empty, all replicas in sync
//	database.go   one SQL server; mariadb.go and mysql.go are the two kinds
//	replica.go    a MariaDB server that follows another one, for failovers
//	program.go    any other program, such as kudos itself, under the same control
//	shared.go     one set of servers for all tests of a test binary
//	missing.go    what is not installed, and whether a test skips or fails for it
//	server.go     kill, stop, pause, start, and waiting until a server answers
//	process.go    commands that end by themselves, and the account that databases run under; freeze_*.go: a child stands
//	ports.go      loopback ports that stay ours while a server is down
//	maven.go      software that comes as Maven artifacts, fetched once per machine
//
// Linux is what it is made for; on other Unixes children are not killed with a parent that died without Close.
package stack
