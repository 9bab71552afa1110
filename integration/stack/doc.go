// Package stack runs real servers for tests: Apache Kafka in KRaft mode, MariaDB and MySQL, on free loopback ports and
// with data in temporary directories.
//
// Start functions take options (KafkaOptions, DatabaseOptions) and return a server that is ready, with its address.
// Through Server, a test can kill, stop and pause it, and start it again on the same data and ports. Nothing is shared
// with other servers on this machine, and nothing is left behind: Close kills the processes and removes their data, and
// if the test dies first, the kernel kills them.
//
// The tests of a test binary share servers (Shared). Require reports missing software; Maven downloads Kafka and MySQL,
// once per machine. NewProgram runs any other program, such as kudos itself, in the same way.
//
// The package is made for Linux. On other Unixes, servers outlive a test that dies without Close.
package stack
