// Package window is the pure core of the ranker: no Kafka, no SQL, no clock of its own.
//
// A Partition takes the net changes of one partition of like-updates in order, keeps
// the likes of each post and region in buckets, and makes Versions: a window's list of
// top posts, as of a definite end of the window and a definite position. Leaders does
// the same for all time. An Alignment finds, from the versions and clocks of all
// partitions, the end of the window that all have reached, and Merge makes one list
// of their lists, which is exact because each post lives in one partition only.
//
// docs/trending.md defines the words; times are Unix minutes throughout.
package window
