package main

import "slices"

const (
	mappingGo      = "producer/bridge/mapping.go"
	bridgeWorkerGo = "producer/bridge/worker.go"
)

// mutants are all mutants. Those of the bridge break what makes events of a table fold to it.
var mutants = append(slices.Concat(ruleMutants, voidMutants), []mutant{
	{1, "a change is not earlier than the one before it", one(mappingGo, "		e.TimeMs = *clock\n", "		e.TimeMs = made\n"), test("producer/bridge", "TestEventsOfATableFoldToIt")},
	{1, "a change is not earlier than a row that was read before it", one(mappingGo, "		*clock = max(*clock, e.TimeMs)\n", ""), test("producer/bridge", "TestEventsOfATableFoldToIt")},
	{1, "a row from the future does not take the clock along", one(mappingGo, "min(cmp.Or(own, made), made)", "cmp.Or(own, made)"), test("producer/bridge", "TestTimes")},
	{1, "a clock that is ahead does not decide for long", one(mappingGo, "min(cmp.Or(c.madeMs, arrived), arrived+schema.MaxAheadMs)", "cmp.Or(c.madeMs, arrived)"), test("producer/bridge", "TestTimes")},
	{3, "the clock is committed with the position", one(bridgeWorkerGo, "		next.Metadata = string(metadata)\n", "		_ = metadata\n"), test("producer/bridge", "TestBridgePublishesEachRecordOnce")},
	{8, "events are later once the layout has changed", one(bridgeWorkerGo, "		w.clock.TimeMs++\n", ""), test("producer/bridge", "TestBridgeFollowsTheLayout")},
	{8, "all changes of a reaction are in one partition of the source", one(mappingGo, "!ok || len(c.key) != 2", "!ok && len(c.key) != 2"), test("producer/bridge", "TestWrongTableParks")},
	{7, "a bridge whose position is lost parks", one(bridgeWorkerGo, "case at.Offset < start || at.Offset > end:", "case false:"), test("producer/bridge", "TestBridgeParksIfItsPositionIsLost")},
	{9, "a sum names the position that it was read at", one("reader/live/subject.go", "			p.AsOf = asOf[i]\n", "			_ = asOf[i]\n"), test("reader/live", "TestPostWithUserBucketsIsSummed")},
	{1, "a later message of a registry's schema is no event", one("schema/event.go", "case len(framed) > 0 && framed[0] == 0:", "case len(framed) > 0:"), test("schema", "TestPoison")},
}...)
