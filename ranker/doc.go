// Package ranker is the ranker role: it computes trending posts and leaderboards from like-updates.
//
//	like-updates ─► trending-local (goka) ─► trending-local ─► trending (goka) ─► trending ─► trending-mysql ─► MySQL
//	 key=post_id     windows, top posts of                      merge by <region>/<window>              trending,
//	                 one partition                                                                      leaderboard
//
// The groups trending-local (local.go) and trending (trending.go) work alike (table.go): fence, catch up the state
// table, verify the position, load the rows; then commit rows, output and position in one transaction. window/ is the
// pure core: buckets, windows, scores, lists, alignment and merge. docs/trending.md has the definitions.
package ranker
