// Package day makes input for rankings: the likes of a day as writers send them, or those of MovieLens; and
// like-updates from them, as the fold would publish them, without Kafka.
//
// The same options give the same events and the same bytes, on every machine.
//
//	file          what is in it
//	day.go        the events of a day, and posts that go viral in it
//	movielens.go  ratings as events
//	updates.go    like-updates from events
package day
