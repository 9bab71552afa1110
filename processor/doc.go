// Package processor is the role that turns events into counts, in two goka groups:
//
//	likes ──► latest-like-action ──► like-updates ──► like-count ──► MySQL
//	              │  ▲                (and likes.dlt,
//	              ▼  │                 likes: misrouted)
//	          state table
//
// Only latest-like-action classifies events: it folds each poll batch over the state table and publishes the results in
// one Kafka transaction together with the position. like-count collapses each poll batch of updates to one net delta
// per post and applies it in one MySQL transaction together with its position. While MySQL is slow or unavailable,
// counts there are delayed and nothing else.
package processor
