// Package ranker is the ranker role: what is rising where, from the exact stream.
//
//	like-updates ─► trending-local (goka) ─► trending-local ─► trending (goka) ─► trending ─► trending-mysql ─► MySQL
//	 key=post_id     windows, a partition's                     merge by <region>/<window>                       trending,
//	                 own top posts                                                                               leaderboard
//
// In come the net changes of posts; out come rankings, a record for each region and
// window that changed. window/ has the pure core: buckets, windows, scores, lists, and
// their alignment and merge; this package moves bytes between it, Kafka and the state
// tables. docs/trending.md has the definitions.
package ranker
