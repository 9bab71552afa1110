package main

const (
	firstGo = "ops/topics/first_progress.go"
	isEmpty = "if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || !empty {\n"
)

// processorMutants are in code that the simulation does not run: the processor's checks at the start, the takeover of a
// partition, and the tools that compare and repair. A test of the same package must catch each.
var processorMutants = []mutant{
	{7, "a position behind the end of likes parks", one(folderGo,
		"p.NextOffset < start || p.NextOffset > end", "p.NextOffset < start || false && p.NextOffset > end"), test("processor", "TestFoldParksPastTheEndOfLikes")},
	{7, "no first progress, and no fence, where the state table has anything", one(firstGo,
		"if there may be need.\n	"+isEmpty, "if there may be need.\n	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || false && !empty {\n"),
		test("processor", "TestFirstProgressIsOfAnEmptyStateTable")},
	{2, "the first progress looks at the state table once more behind the fence", one(firstGo,
		"defer cl.Close()\n	"+isEmpty, "defer cl.Close()\n	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || false && !empty {\n"),
		test("processor", "TestFirstProgressIsOfAnEmptyStateTable")},
	{7, "the fold takes nothing for damage that a successor can have done", one(folderGo,
		"	if taken := w.CheckMember(ctx); taken != nil {\n		return taken\n	}\n", ""), test("processor", "TestATakeoverIsNoDamage")},
	{6, "a position that another process moved is no damage", one(counterGo,
		`return stream.Reopen("the position in MySQL has moved")`, `return stream.Park(stream.CauseMySQL, table.ActionRebuild, "%w", err)`), test("processor", "TestATakeoverIsNoDamage")},
	{6, "nor is one that it moved while this one was idle", one(counterGo,
		`return stream.Reopen(fmt.Sprintf("MySQL stands`, `return stream.Park(stream.CauseMySQL, table.ActionRebuild, "%s", fmt.Sprintf("MySQL stands`), test("processor", "TestATakeoverIsNoDamage")},
	{7, "a state table is made from all events that were folded", one("ops/rebuild/events.go",
		"max(progress.NextOffset, committed)", "min(progress.NextOffset, committed)"), test("ops/rebuild", "TestEventsAreReplayedToWhereTheyWereFolded")},
	{7, "a loss is not looked for in a state table that went back", one("ops/rebuild/repair.go",
		"	if other != nil && !other.OffsetOnly && p.UpdatesID", "	if false && p.UpdatesID"), test("ops/rebuild", "TestWhatIsRefused")},
	{7, "MySQL is not made from the state table of another like-updates", one("ops/rebuild/mysql.go",
		"case p.UpdatesID != c.Source.TopicID:", "case false:"), test("ops/rebuild", "TestMySQLIsNotMadeFromAStateTableOfOtherTopics")},
	{7, "nor put in place if like-updates is another by then", one("ops/rebuild/mysql.go",
		"if topics.ByName[schema.TopicUpdates].ID != c.Source.TopicID {", "if false && topics.ByName[schema.TopicUpdates].ID != c.Source.TopicID {"),
		test("ops/rebuild", "TestUpdatesCreatedAgainWhileMySQLIsMade")},
	{7, "counts that may have been compacted are unknown", one("ops/audit/updates.go",
		"age > r.c.compactionLag", "false && age > r.c.compactionLag"), test("ops/audit", "TestCountsThatMayBeCompactedAreUnknown")},
	{7, "a negative count is a difference, whoever agrees", one("ops/audit/compare.go",
		"return c.Likes < 0 || c.Dislikes < 0", "return false && c.Likes < 0"), test("ops/audit", "TestCompare")},
}

func init() { mutants = append(mutants, processorMutants...) }
