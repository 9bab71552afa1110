// Package rankings works out what every ranking must be, and compares. In go the records of like-updates and
// trending-exclusions, the settings of the ranker, and the rankings that it published; out come differences, none if
// all is well. docs/trending.md has the definitions.
//
// It shares nothing with the ranker but the wire contracts. Each ranking names the positions in the logs that it is
// made of: the log of a partition is read once, and at each position named in it the posts of the window are summed up
// from scratch from buckets of a minute and an hour. Where the ranker remembers lists and moves windows, this adds up.
//
// What a difference breaks:
//
//	record     it decodes, and key, version and settings are right
//	bounds     from and to are a window of this size and hop
//	alignment  to is the largest that the partitions have reached which have something in the window
//	watermark  is the least of those partitions
//	positions  each partition is named, in its log, and neither they nor to go back
//	posts      who is ranked, in which order, with which score and likes
//	previous   what is said of the ranking before
//	needless   something has changed since the ranking before
//	missing    the last ranking of a key covers the whole log (if it is said to have ended)
//	log        like-updates itself is whole
//
//	file           what is in it
//	log.go         the records, kept small, and how they are read
//	config.go      the settings, windows and their bounds, and what a like of an age weighs
//	partition.go   likes by post, region and bucket up to a position
//	best.go        the best posts of a window
//	exclusions.go  who is excluded at a position
//	published.go   a ranking as it was published, and the one before
//	check.go       the check, and that of what must be there at the end
//
// day/ makes input: the likes of a day, and like-updates from them.
package rankings
