// Package mysqlproxy stands between a program and its MySQL server, for tests: it reads every statement that goes by,
// and can let exactly one step go wrong.
//
// In come connections (Start says where) and, for each statement, a Verdict from the function that the test has set by
// On. Out goes the statement as it came, or what the verdict makes of it: a connection that breaks before or after the
// server did it, an error instead of an answer, another statement. SetAway keeps the server away altogether.
//
// Protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
package mysqlproxy
