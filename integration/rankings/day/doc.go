// Package day generates input for rankings: the likes of a day as clients send them, or those of MovieLens; and
// like-updates from them, as the fold would publish them, without Kafka.
//
// The same options give the same events and the same bytes on every machine.
//
//	file          contents
//	day.go        the events of a day, with posts that go viral
//	movielens.go  ratings as events
//	updates.go    like-updates from events
package day
