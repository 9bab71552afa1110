// Package peers holds nothing but the test of the peers: the other ways to count likes that kudos is compared with. Each
// is a command of its own, in the folder of its name; peer/ is what they share, README.md how each was tuned.
//
// A module of its own, so that what the peers need never is among what kudos needs.
package peers
