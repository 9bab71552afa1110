// Package ranker is the ranker role: what is trending where, from like-updates.
//
//	like-updates ─► trending-local (goka) ─► trending-local ─► trending (goka) ─► trending ─► trending-mysql ─► MySQL
//	 key=post_id     windows, a partition's                     merge by <region>/<window>              trending,
//	                 own top posts                                                                      leaderboard
//
// The groups trending-local (local.go) and trending (trending.go) have one shape (table.go): fence, catch the state
// table up, verify the position, load the rows; then commit rows, output and position in one transaction. window/ has
// the pure core: buckets, windows, scores, lists, and their alignment and merge. docs/trending.md has the definitions.
package ranker
