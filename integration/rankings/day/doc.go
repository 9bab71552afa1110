// Package day generates input for rankings: the likes of a day as clients send them, or those of MovieLens; and
// like-updates from them, as the fold would publish them, without Kafka.
//
// The same options give the same events and the same bytes on every machine.
package day
