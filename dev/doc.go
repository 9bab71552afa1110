// Package dev is what `kudos dev` needs to show the whole system with nothing installed: a Kafka broker and a MySQL
// server inside this process, a simulator of likes, and the output on the terminal. The roles run next to it as they do
// in production and know nothing of it.
//
//	Simulator ──► likes ─┐
//	      └─► HTTP API ──┤     ┌─► Broker (kfake) ◄─► the roles ◄─► Database (go-mysql-server)
//	                     └─────┘
//
// MySQL's data is in memory, Kafka's in a directory, from which the caller can rebuild MySQL's. Both servers are
// stand-ins, exact enough for exact counts; Broker and Database say where they differ from the real ones.
//
// The build tag nodev leaves the two servers out.
package dev
