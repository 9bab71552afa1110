// Package sizing computes what kudos needs for a load that cannot be generated here: how many partitions, processors,
// disks and readers. Given a Load and measured Units, New returns a Plan, and Simulate checks it: likes reach the
// partitions at random, and a processor dies in the busiest hour.
//
// docs/scaling.md has the plan of the largest load (go run ./integration/cmd/sizing), and a test keeps the two in sync.
package sizing
