// Package stack runs real servers for tests: Apache Kafka in KRaft mode, MariaDB and MySQL, each on free loopback ports
// with its data in a temporary directory.
//
// In goes a description (KafkaOptions, DatabaseOptions); out comes a running server that answers, with the address to
// reach it by. A test may kill, stop, pause and start it again on the same data and ports, through Server. Nothing is
// shared with servers that run on this machine already, and nothing stays: Close kills the processes and removes their
// data, and if the test dies before Close, the kernel kills them.
//
// The tests of a test binary share servers (Shared). Require says what is not installed; Maven brings Kafka and MySQL,
// once per machine. Any other program, such as kudos itself, runs under the same control (NewProgram).
//
// Linux is what it is made for; on other Unixes children are not killed with a parent that died without Close.
package stack
