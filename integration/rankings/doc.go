// Package rankings computes what every ranking must be, and compares. It takes the records of like-updates and
// trending-exclusions, the settings of the ranker, and the rankings that it published; it returns differences, none if
// all is well. docs/trending.md has the definitions.
//
// It shares nothing with the ranker but the wire contracts. Each ranking names the log positions it is based on: the
// log of a partition is read once, and at each named position the posts of the window are summed up from scratch, from
// buckets of a minute or an hour. The ranker keeps lists and moves windows incrementally; this package just adds up.
//
// The rules that a difference can violate:
//
//	record     it decodes, and key, version and settings are right
//	bounds     from and to are a window of this size and hop
//	alignment  to is the largest end reached by all partitions that have something in the window
//	watermark  it is the lowest of those partitions
//	positions  each partition is named, within its log, and neither positions nor to go back
//	posts      the right posts, in order, with their scores and likes
//	previous   the reference to the previous ranking is right
//	needless   something has changed since the previous ranking
//	missing    the last ranking of a key covers the whole log (if it is said to have ended)
//	log        like-updates itself has no gaps
//
//	file           contents
//	log.go         the records, kept compactly, and how they are read
//	config.go      the settings, windows and their bounds, and weights of likes by age
//	partition.go   likes by post, region and bucket up to a position
//	best.go        the best posts of a window
//	exclusions.go  the posts excluded at a position
//	published.go   a published ranking, and the previous one
//	check.go       the checks of each ranking, and of the last ones
//
// day/ generates input: the likes of a day, and like-updates from them.
package rankings
