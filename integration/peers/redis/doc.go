// Command redis is peer (a): likes counted in Redis as most teams do it, at its best.
//
// In comes the topic likes; each poll batch becomes Lua calls on Redis, which keeps who likes what in 64 sets a post
// (likes:<post>:<user % 64>) and how many those are in a counter beside them (likes:<post>). The counts that changed
// are written to MySQL in the background.
//
//	Kafka ─► read (decode, sort by post, shard and user) ─► execute (pipeline of EVALSHA) ─► peer.Counts ─► MySQL
//
// Within a batch the last action of a user decides, as it would if the actions came to Redis one by one. SADD and SREM
// make redelivery harmless: offsets are committed when the counts are in MySQL, and a batch that is read again ends in
// the same sets, and has its counts written again. What the design cannot hold is a crash of Redis: the append-only
// file is synced once a second, and likes that it lost are behind the committed offsets by then.
//
//	file         what is in it
//	main.go      the three stages
//	script.go    the script, and a batch as calls of it
package main
