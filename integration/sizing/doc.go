// Package sizing works out what kudos takes for a load that nobody here can make: how many partitions, processors,
// disks and readers. In come a Load and Units, figures that were measured; out comes a Plan, and Simulate looks whether
// it holds: likes come to the partitions by chance, and a processor dies in the busiest hour.
//
// docs/scaling.md has the plan of the largest load (go run ./integration/cmd/sizing), and a
// test holds the two together.
package sizing
