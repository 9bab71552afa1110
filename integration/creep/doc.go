// Package creep keeps the cost per event from growing unnoticed, a little with each change.
//
// record.json has the instructions and allocations per event for parts of the program. The test fails if one costs much
// more now, or so much less that the record must be updated. Times would be useless on a machine that does other things
// too; these figures are mostly reproducible to within 1 %.
//
//   - workload.go: the measured parts and their allocations; store.go: those that use a store;
//   - measure.go: counting instructions with valgrind, in a separate process;
//   - record.go: the last figures, and the comparison with them.
//
// The measured program is integration/cmd/creep.
package creep
