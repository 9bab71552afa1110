// Package window is the pure core of the ranker: it uses no Kafka, no SQL and no wall clock.
//
// A Partition takes the net deltas of one partition of like-updates in order, keeps the likes per post and region in
// time buckets, and produces Versions: the top posts of a window as of a window end and an offset. Leaders does the
// same for all time. Align finds, from the clocks of all partitions, the window end that all of them have reached, and
// Merge combines their lists.
//
// docs/trending.md has the definitions. All times are Unix minutes.
package window
