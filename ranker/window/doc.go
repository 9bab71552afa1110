// Package window is the pure core of the ranker: no Kafka, no SQL, no clock of its own.
//
// A Partition takes the net changes of one partition of like-updates in order, keeps the likes of each post and region
// in buckets, and makes Versions: a window's list of top posts, as of an end of the window and a position. Leaders does
// the same for all time. Align finds, from the clocks of all partitions, the end of the window that all have reached,
// and Merge makes one list of their lists.
//
// docs/trending.md has the definitions. Times are Unix minutes throughout.
package window
