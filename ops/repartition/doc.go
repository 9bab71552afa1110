// Package repartition moves reactions to where they live by another layout: more partitions, or other user buckets
// (`kudos topics repartition`).
//
//	lock ──► grow ──► MySQL ──► move, move, … ──► unlock
//
// The lock is a progress record in each partition: it names the layout that is to be, and says that reactions are
// moving to it. A worker that finds it folds nothing. So it does not matter who knows how many partitions there are:
// between lock and unlock nobody folds, and after it everybody folds by what the record says. Likes are accepted all
// the while; those that lie in another partition than their reaction are forwarded, as ever.
//
// A move is one Kafka transaction over the old and the new partitions: reactions and counts appear in one and disappear
// from the other together, with the updates that say so. It can end anywhere: the next run moves what is left.
package repartition
