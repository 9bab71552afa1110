// Package dev is what `kudos dev` needs to show the whole system with nothing
// installed: a Kafka broker and a MySQL server inside this process, a simulator that
// likes, and the words on the terminal. The roles run beside it as they do in
// production and know nothing of it.
//
//	Simulator ──► likes ─┐
//	      └─► HTTP API ──┤     ┌─► Broker (kfake) ◄─► the roles ◄─► Database (go-mysql-server)
//	                     └─────┘        ▲
//	                           Trimmer, Compactor
//
// In come addresses and a rate; out go addresses (a banner, a ready file) and numbers
// (a status line). MySQL's data is in memory, Kafka's in a directory, from which the caller
// can rebuild MySQL's.
//
// The two servers are stand-ins. They are exact enough for exact counts; what they do
// not do as the real ones do stands at Broker and Database.
//
// The build tag nodev leaves the two servers out.
package dev
