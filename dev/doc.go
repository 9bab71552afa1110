// Package dev contains what `kudos dev` needs to run the whole system without installation: an in-process Kafka broker
// and MySQL server, a like simulator, and the terminal output. The roles run as in production and do not depend on it.
//
//	Simulator ──► likes ─┐
//	      └─► HTTP API ──┤     ┌─► Broker (kfake) ◄─► the roles ◄─► Database (go-mysql-server)
//	                     └─────┘
//
// MySQL's data is in memory. Kafka's is in a directory, from which the caller can rebuild MySQL's. Both servers are
// stand-ins, exact enough for exact counts; Broker and Database document the differences from real servers.
//
// The build tag nodev leaves the two servers out.
package dev
