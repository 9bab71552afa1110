// Package creep keeps the work that each event costs from growing unnoticed, a little with each change.
//
// In comes record.json, which says for parts of the program how many instructions and allocations an event costs; out
// goes a failed test where it costs much more now, or so much less that the record is to be made anew. Times would tell
// nothing on a machine that does other things too; these figures are mostly the same within one per cent.
//
//   - workload.go: the parts that are held, doing one again and again, and its allocations; store.go: those in a store;
//   - measure.go: how instructions are counted: by valgrind, in a process of their own;
//   - record.go: what was counted last, and what differs too much from it.
//
// The program that is counted is integration/cmd/creep.
package creep
