// Package repartition gives reactions a layout of more partitions or other user buckets (`kudos topics repartition`).
//
//	lock ──► grow ──► MySQL ──► move, move, … ──► unlock
//
// The lock is a progress record in each partition: it has the new layout and says that reactions are migrating to it. A
// worker that reads it stops folding. Processors may therefore learn the new number of partitions at different times:
// between lock and unlock nobody folds, and afterward everybody folds by the layout in the record. Likes are accepted
// all the while; those in a different partition than their reaction are forwarded as usual.
//
// A move is one Kafka transaction over old and new partitions: reactions and counts leave one and appear in the other
// atomically, with the updates that announce it. A run can be stopped at any point; the next moves what is left.
package repartition
