package main

// mutant removes one clause of a rule of docs/design.md from the program.
type mutant struct {
	rule   int
	clause string // what the rule says and the mutant violates
	edits  []edit
	by     catcher
}

// edit replaces a text that occurs exactly once in a file.
type edit struct{ file, old, new string }

// catcher is the test that must fail.
type catcher struct {
	pkg, run string
	// real: the test needs a real broker or database.
	real bool
}

const (
	foldGo        = "processor/fold/fold.go"
	foldWorkerGo  = "processor/latest_like_action.go"
	batchGo       = "processor/fold_batch.go"
	counterGo     = "processor/like_count.go"
	classifyGo    = "processor/fold/classify/classify.go"
	stepGo        = "stream/partition.go"
	groupGo       = "stream/group.go"
	queueGo       = "stream/queue.go"
	txnGo         = "stream/kafka/txn.go"
	inspectGo     = "stream/kafka/inspect.go"
	readerGo      = "stream/kafka/log_reader.go"
	catchUpGo     = "stream/store/catch_up.go"
	spillGo       = "stream/store/spill.go"
	bufferSpillGo = "stream/store/buffer/spill.go"
	likeCountsGo  = "processor/like_counts_topic.go"
	reactionsGo   = "reader/reactions.go"
	replicasGo    = "stream/replicas.go"
	viewGo        = "stream/view_partition.go"
	laneGo        = "reader/view/lane.go"
	countsGo      = "reader/view/counts.go"
	applyGo       = "sql/apply.go"
	firstGo       = "ops/topics/first_progress.go"
	isEmpty       = "if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || !empty {\n"
)

// simulation catches most mutants: the rules exist to keep counts exact under all circumstances.
var simulation = catcher{pkg: "integration/simulation", run: "TestSchedules"}

func test(pkg, run string) catcher { return catcher{pkg: pkg, run: run} }
func real(run string) catcher      { return catcher{pkg: "integration", run: run, real: true} }

func one(file, old, new string) []edit { return []edit{{file, old, new}} }

var ruleMutants = []mutant{
	{1, "the latest event time decides", one(foldGo, "cmp.Or(cmp.Compare(e.TimeMs, p.TimeMs), cmp.Compare(e.Offset, p.Offset)) <= 0", "e.Offset <= p.Offset"), simulation},
	{1, "for equal times the later offset decides", one(foldGo, "cmp.Or(cmp.Compare(e.TimeMs, p.TimeMs), cmp.Compare(e.Offset, p.Offset)) <= 0", "e.TimeMs <= p.TimeMs"), simulation},
	{1, "event times are capped at 60 s after log append", one("schema/event.go", "MaxAheadMs = 60_000", "MaxAheadMs = 60_000_000"), simulation},
	{1, "escapes in JSON are read as what they say", one("schema/event_json.go", "bytes.IndexByte(b, '\\\\') >= 0 &&", "false && bytes.IndexByte(b, '\\\\') >= 0 &&"), test("schema", "TestEscapesSayTheSame")},
	{1, "an absent time is the log-append time", one("schema/event.go", "		e.TimeMs = appendMs\n	}\n	if limit", "		e.TimeMs = 1\n	}\n	if limit"), simulation},
	{1, "the wall clock decides nothing", one(classifyGo, "e.ResolveTime(rec.Timestamp.UnixMilli())", "e.ResolveTime(time.Now().UnixMilli())"), simulation},
	{1, "the events of a pair are applied in order, not only the last", one(foldGo,
		"			f.apply(&f.pairs[p], &events[i])\n",
		"			if !slices.Contains(f.pairOf[i+1:], p) {\n				f.apply(&f.pairs[p], &events[i])\n			}\n"), simulation},
	{1, "time and offset are stored when the reaction stays the same", one(foldGo,
		"	p.TimeMs, p.Offset = e.TimeMs, e.Offset\n	if same {\n		return\n	}\n",
		"	if same {\n		return\n	}\n	p.TimeMs, p.Offset = e.TimeMs, e.Offset\n"), simulation},
	{1, "a second LIKE does not move the first", one(foldGo, "same := p.known && reaction == p.Reaction", "same := false"), simulation},
	{1, "a withdrawal counts in the minute and region of the reaction", one(foldGo,
		"	f.count(p, -1)\n	p.Reaction,", "	f.count(&pair{Pair: schema.Pair{Reaction: p.Reaction, Region: e.Region, SinceMs: e.TimeMs, Void: p.Void}, post: p.post}, -1)\n	p.Reaction,"), simulation},
	{1, "\"none\" is stored as a reaction, not as a tombstone", one(batchGo,
		"		rec := out.add(schema.TopicState, key, out.slice(schema.AppendPair(out.bytes, &p.Pair)))\n",
		"		value := out.slice(schema.AppendPair(out.bytes, &p.Pair))\n		if p.Reaction == schema.NoReaction {\n			value = nil\n		}\n		rec := out.add(schema.TopicState, key, value)\n"), simulation},

	{2, "one transactional id per partition, whoever owns it", one("processor/processor.go",
		"schema.FoldTransactionalIDs(a.Partition),\n		Member", "[]string{time.Now().String(), time.Now().String()},\n		Member"), real("TestRule2")},
	{2, "the transactional id is initialized before anything is read", one("stream/kafka/fencing.go", "	_, _, err := cl.ProducerID(ctx)\n", "	var err error\n"), real("TestRule2")},
	{2, "the version of transactions is checked at each fence", one("stream/kafka/fencing.go", "RequireTransactionVersion2(ctx, cl); err != nil", "RequireTransactionVersion2(ctx, cl); err != nil && false"), test("stream/kafka", "TestFenceAfterADowngrade")},
	{2, "the second transactional id is initialized, too", one(txnGo, "	return fence(ctx, cl)\n", "	if len(t.cls) > 1 {\n		return nil\n	}\n	return fence(ctx, cl)\n"), simulation},
	{2, "a tool initializes the second transactional id, too", one("stream/kafka/fencing.go", "	for _, id := range ids {", "	for _, id := range ids[:1] {"), test("stream/kafka", "TestToolFencesAllIDs")},
	{2, "the membership is checked before each transactional id", one(txnGo,
		"	if err := t.CheckMember(ctx); err != nil {\n		return err\n	}\n",
		"	if len(t.cls) == 1 {\n		if err := t.CheckMember(ctx); err != nil {\n			return err\n		}\n	}\n"), test("stream/kafka", "TestMembershipEndsBetweenTheIDs")},
	{2, "a state table says that both ids are used", one(foldWorkerGo, "		progress.Alternating = n > 1 //", "		w.Alternate(n > 1) //"), test("processor", "TestTransactionalIDsOfAStateTable")},
	{2, "the first transaction after opening uses the first id", one(txnGo, "		t.inUse = len(t.cls)\n", "		t.inUse, t.next = len(t.cls), 1\n"), test("processor", "TestTransactionalIDsOfAStateTable")},
	{7, "a topic that was recreated before a client first writes to it is not written", one(txnGo,
		"		if now.ByName[name].ID != topic.ID {", "		if now.ByName[name].ID != topic.ID && name == \"\" {"), test("processor", "TestFoldParksAtRecreatedTopics")},
	{2, "an expired transactional id is not a lost partition", one("stream/kafka/fencing.go",
		"{kerr.ProducerFenced, ", "{kerr.InvalidProducerIDMapping, kerr.ProducerFenced, "), test("stream/kafka", "TestExpiredIDIsNotFenced")},
	{2, "a tool that a parked worker fences tries again", one("stream/kafka/fencing.go", "		if IsTakenOver(err) {", "		if false {"), test("stream/kafka", "TestRetryTakenOver")},
	{2, "a fenced worker gives up", one("stream/kafka/fencing.go", "			return fmt.Errorf(\"%w: %w\", ErrFenced, err)\n", "			return fmt.Errorf(\"%w\", err)\n"), real("TestRule2")},
	{2, "a fenced worker never initializes its transactional id again", []edit{
		{stepGo, "	if errors.Is(err, kafka.ErrFenced) {", "	if false {"},
		{txnGo, "	if err := t.CheckMember(ctx); err != nil {\n		return err\n	}\n", ""}}, real("TestRule2")},
	{2, "an owner whose generation ended before it had initialized all ids starts again", one(txnGo, "	if err == nil && m.Generation != t.fencedIn {", "	if false {"), test("integration/simulation", "TestScripts")},
	{2, "a process that has lost its membership does not take the partition", one(txnGo,
		"	if err := t.CheckMember(ctx); err != nil {\n		return err\n	}\n", ""), real("TestRule2")},

	{3, "the consumer offset is in the transaction", one(txnGo,
		"	if err := AddOffset(x.ctx, x.cl, x.cl.id, x.t.opts.Group, x.t.opts.Source, next); err != nil {", "	if err := error(nil); err != nil {"), simulation},
	{3, "progress is in the transaction", one(batchGo,
		"		out.progress.NextOffset, out.progress.LeaderEpoch = out.next.Offset, out.next.Epoch\n", ""), simulation},
	{3, "updates are in the transaction", one(batchGo, "	return out.add(schema.TopicUpdates, key,",
		"	if len(u.Deltas) > 0 {\n		return &kgo.Record{}\n	}\n	return out.add(schema.TopicUpdates, key,"), simulation},
	{3, "state is in the transaction", one(batchGo,
		"		out.add(schema.TopicState, key, out.slice(schema.AppendCounts(out.bytes, c.Counts)))\n", "		_ = key\n"), simulation},
	{3, "forwards are in the transaction", one(batchGo,
		"	out.records = append(out.records, v.Forwards...)\n", ""), simulation},
	{3, "dead letters are in the transaction", one(batchGo,
		"	out.records = append(out.records, v.DeadLetters...)\n", ""), simulation},
	{3, "the local store is written only after the commit", one(batchGo, "	return x.Commit(b.Next)\n",
		"	if offset, ok := w.store.Offset(); ok {\n		if err := out.store.Commit(offset); err != nil {\n			return err\n		}\n	}\n	return x.Commit(b.Next)\n"), simulation},
	{3, "a standby replica is closed before its partition is opened", one(groupGo,
		"err := g.standby.release(ctx, n)", "err := error(nil)"), test("stream", "TestStandbyTakesOver")},
	{3, "an owned partition has no standby replica", one("stream/standby.go", "return owned[n] == nil", "return true"), test("stream", "TestStandbyTakesOver")},
	{3, "changes that were only staged are discarded", one(batchGo,
		"		out.store.Discard() //", "		//"), simulation},
	{3, "changes that were only staged are not on disk", one(spillGo,
		"	if s.buffer.Unsealed() {\n", "	if false {\n"), test("stream/store", "TestStagedIsNotKept")},
	{3, "the store's offset is that of its data", one(batchGo,
		"out.store.Commit(out.last.Offset)", "out.store.Commit(out.last.Offset + 3)"), simulation},
	{3, "data and offset are one atomic write", one("stream/store/store.go",
		"	if err := b.Set([]byte(localKey), encodeLocal(id, offset), nil); err != nil {",
		"	if err := s.db.Set([]byte(localKey), encodeLocal(id, offset), nil); err == nil {\n		err = s.db.Flush()\n	}\n	if err := error(nil); err != nil {"), test("stream/store", "TestStoreAfterACrash")},
	{3, "changes only in memory have their offset only in memory", one(spillGo,
		"	s.buffer.Seal()\n	s.offset.Store(offset)\n", "	s.buffer.Seal()\n	s.offset.Store(offset)\n	_, _ = s.commitBatch(s.db.NewBatch(), s.id, offset), s.db.Flush()\n"), test("stream/store", "TestBufferedStoreIsATable")},
	{3, "data and offset are spilled to one file", one(spillGo, "encodeLocal(id, offset)", "encodeLocal(id, offset+1)"), test("stream/store", "TestBufferedStoreIsATable")},
	{3, "a store whose log has grown beyond it again is rebuilt", one("stream/store/catch_up.go", "		end = min(end, epochEnd)", "		_ = epochEnd"), test("stream/store", "TestCatchUpOfALogThatHasRegrown")},
	{3, "the fold's store knows the epoch of its records", one(batchGo, "	out.store.SetEpoch(epoch)\n", "	_ = epoch\n"), test("processor", "TestFoldRebuildsAStoreWhoseLogHasRegrown")},
	{3, "the filter knows every key that is on disk", one(bufferSpillGo, "	sp.entries.eachHash(sp.filter.add)\n", ""), test("stream/store", "TestBufferedStoreIsATable")},
	{3, "a failed spill still serves lookups", one("stream/store/buffer/buffer.go",
		"!b.Settled() || b.spill != nil && b.spill.err != nil\n", "!b.Settled()\n"), test("stream/store", "TestBufferedStoreOnAFullDisk")},
	{3, "the filter decides only when it is complete", one("stream/store/buffer/buffer.go",
		" && isClosed(b.build.done) && b.build.ok {", " && isClosed(b.build.done) {"), test("stream/store/buffer", "TestFilterIsUsedOnceComplete")},
	{3, "records are recycled only after they were processed", one(stepGo,
		"		err = p.worker.Process(work, b)\n", "		recycle(b.Records)\n		err = p.worker.Process(work, b)\n"), test("stream", "TestProcessorWithATable")},
	{3, "a store ahead of the log is rebuilt", one(catchUpGo, "	case ok && (last+1 < start || last+1 > end):", "	case ok && last+1 < start:"), test("stream/store", "TestCatchUpOfAnUnrelatedStore")},
	{3, "a read error is not \"not found\"", one("stream/store/read.go",
		"			if err := r.iter.Error(); err != nil {\n				return r.s.failed(\"reading\", err)\n			}\n			continue", "			continue"), test("stream/store", "TestStoreCorruptedWhileOpen|TestLookup")},

	{3, "a transaction with records is not committed as an empty one", one(txnGo,
		"; leader >= 0 || err != nil {", "; leader >= 0 || err == nil {"), test("stream/kafka", "TestCommitToAnUnknownTopic")},

	{4, "the other transactional id does not go on after a commit of unknown outcome", one(txnGo,
		"	if err := CommitTransaction(x.ctx, x.cl, x.any.Topic, x.any.Partition); err != nil {\n",
		"	if err := CommitTransaction(x.ctx, x.cl, x.any.Topic, x.any.Partition); err != nil && x.t.inUse == 1 {\n"), simulation},
	{4, "an error closes both transactional ids", one(txnGo,
		"	if err := x.commit(next); err != nil {\n		t.Close()\n", "	if err := x.commit(next); err != nil {\n"), test("stream/kafka", "TestErrorClosesAllIDs")},
	{4, "after a Kafka commit with unknown outcome nothing is resent blindly", one(batchGo,
		"	err = w.transact(ctx, x, b, out)\n	tracing.End(out.spans, err)\n	if err != nil {",
		"	err = w.transact(ctx, x, b, out)\n	tracing.End(out.spans, err)\n	if err != nil {\n		x.Drop()\n		out.store.Discard()\n		if w.Fence(ctx) == nil {\n			if x, err = w.Begin(ctx); err == nil {\n				*out = output{partition: w.partition, progress: w.progress, next: b.Next, store: w.store.NewWrite()}\n				err = w.transact(ctx, x, b, out)\n			}\n		}\n	}\n	if err != nil {"), simulation},
	{4, "after a Kafka commit with unknown outcome the state is read again", one(foldWorkerGo,
		"	if _, err := w.store.CatchUp(ctx, w.Client(), store.Hooks{}); err != nil {",
		"	if w.progress.Partitions != 0 {\n		return kafka.Position{Offset: w.progress.NextOffset, Epoch: w.progress.LeaderEpoch}, nil\n	}\n	if _, err := w.store.CatchUp(ctx, w.Client(), store.Hooks{}); err != nil {"), simulation},
	{4, "after a MySQL commit with unknown outcome nothing is resent blindly", []edit{
		{applyGo, "	return &UnknownOutcomeError{Err: err}\n", "	return retry.RetryableError(err)\n"},
		{applyGo, "	if changed != 1 {", "	if changed > 1 {"}}, simulation},
	{4, "the unknown outcome of a MySQL commit is reported as such", one(applyGo,
		"	return &UnknownOutcomeError{Err: err}\n", "	return retry.RetryableError(err)\n"), test("sql", "TestUnknownOutcomeOfCommit")},
	{4, "after a MySQL commit with unknown outcome the position is read again", one(counterGo,
		"		return stream.Reopen(unknown.Error())\n", "		return nil\n"), simulation},

	{5, "recovery reads only committed data", []edit{
		{readerGo, "	req.IsolationLevel = 1 // read_committed", "	req.IsolationLevel = 0"},
		{readerGo, "kgo.ReadCommitted()", "kgo.ReadUncommitted()"}}, simulation},
	{5, "consumer groups read only committed data", one(groupGo, "		kgo.FetchIsolationLevel(kgo.ReadCommitted()),\n", ""), test("processor", "TestFailedStepLeavesNoTrace")},
	{5, "offset fetches require stable offsets", one(inspectGo, "	req.RequireStable = true\n", ""), simulation},
	{5, "recovery ends at the last stable offset, not before", one(catchUpGo,
		"		return next < f.End, err\n", "		return false, err\n"), simulation},
	{5, "recovery ends at the offset from ListOffsets, not from a fetch", []edit{
		{readerGo, "	if next == offset && next < r.end {", "	if false {"},
		{readerGo, "End: max(fp.LastStableOffset, r.end)", "End: fp.LastStableOffset"}}, simulation},
	{5, "the end is the last stable offset", one(inspectGo,
		"	req.IsolationLevel = 1 // read_committed", "	req.IsolationLevel = 0"), test("stream/store", "TestCatchUp")},
	{5, "control records occupy offsets", one(queueGo, "		return records, q.mu.fetched, nil\n", ""), test("stream", "TestSettledPosition")},
	{5, "a position has the leader epoch of its own last record", one(queueGo,
		"		return records, q.mu.fetched, nil\n", "		return records, kafka.Position{Offset: q.mu.fetched.Offset, Epoch: records[n-1].LeaderEpoch}, nil\n"), simulation},
	{5, "lag is measured to the last data record", one(queueGo,
		"		q.mu.fetched = kafka.Position{Offset: rec.Offset + 1, Epoch: rec.LeaderEpoch}\n		if !rec.Attrs.IsControl() {\n",
		"		if !rec.Attrs.IsControl() {\n			q.mu.fetched = kafka.Position{Offset: rec.Offset + 1, Epoch: rec.LeaderEpoch}\n"), test("stream", "TestSettledPosition")},

	{6, "exactly one row must change", one(applyGo, "	if changed != 1 {", "	if changed > 1 {"), simulation},
	{6, "the stored position must be the expected one", []edit{
		{applyGo, " AND partitions = ?\"+\n				\" AND next_offset = ? AND next_seq = ?\",", " AND partitions = ?\","},
		{applyGo, "src.Partitions, from.NextOffset, from.NextSeq)", "src.Partitions)"}}, simulation},
	{6, "the topic id must be the same", []edit{
		{applyGo, " AND topic_id = ?", ""},
		{applyGo, "		src.Topic, partition, src.topicID(), src", "		src.Topic, partition, src"}}, test("sql", "TestApplyComparesEveryColumn")},
	{6, "the partition count must be the same", []edit{
		{applyGo, " AND partitions = ?", ""},
		{applyGo, "src.topicID(), src.Partitions, from", "src.topicID(), from"}}, test("sql", "TestApplyComparesEveryColumn")},
	{6, "position and counts are one transaction", []edit{
		{applyGo, "	return s.transact(ctx, func", "	if err := s.transact(ctx, func"},
		{applyGo, "		if err != nil {\n			return err\n		}\n		limit, exec",
			"		return err\n	}); err != nil {\n		return err\n	}\n	return s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {\n		limit, exec"}}, simulation},
	{6, "the position is moved first", []edit{
		{applyGo, "		err := compareAndSwap(", "		move := func() error { return compareAndSwap("},
		{applyGo, "from.NextSeq)\n		if err != nil {\n			return err\n		}\n		limit, exec", "from.NextSeq) }\n		limit, exec"},
		{applyGo, "		return eachStatement(limit, hourUpsert, hours, appendHour(partition), exec)\n",
			"		if err := eachStatement(limit, hourUpsert, hours, appendHour(partition), exec); err != nil {\n			return err\n		}\n		return move()\n"}},
		test("sql", "TestApplyLocksPositionThenPostsThenHoursInOrder")},
	{6, "rows are written in the order of posts", one(applyGo, "	slices.SortFunc(counts, func(a, b CountDelta) int { return cmp.Compare(a.PostID, b.PostID) })\n", ""), test("sql", "TestApplyLocksPositionThenPostsThenHoursInOrder")},
	{6, "READ COMMITTED", one(applyGo, "stdsql.LevelReadCommitted", "stdsql.LevelRepeatableRead"), test("sql", "TestSessionVariables|TestApplyLocksPositionThenPostsThenHoursInOrder|TestPartitionsApplyConcurrently")},
	{6, "an empty range is not sent", one(applyGo, "to.NextOffset <= from.NextOffset ||", "to.NextOffset < from.NextOffset ||"), test("sql", "TestApplyRejectsImpossibleInput")},
	{6, "if the position has moved, it is read again", one(counterGo,
		"		return stream.Reopen(\"the position in MySQL has moved\")\n", "		return nil\n"), simulation},
	{6, "the position is read under its lock", one("sql/position.go", "partition, \" FOR UPDATE\")", "partition, \"\")"), test("sql", "TestPositionWaitsForAnOpenTransaction")},
	{6, "a partition is counted in its own shard", one("processor/processor.go", "w.db.Of(a.Partition)", "w.db.Of(0)"), test("processor", "TestUnavailableServerParksOnlyItsOwnPartitions")},
	{6, "a shard has positions of its own partitions only", one("sql/position.go",
		"		if !shard.Has(partition) {\n			continue\n		}\n", ""), test("sql", "TestShardHasOnlyItsOwnPartitions")},
	{6, "the position is checked while idle", one(counterGo,
		"		return w.checkIdle(ctx)\n", "		return nil\n"), simulation},
	{6, "a first position lost in a failover is not damage", one(counterGo,
		"		return stream.Reopen(\"MySQL has no position any more\")\n", "		return parkMySQL(err)\n"), simulation},

	{7, "a gap in seq parks", one(counterGo, "		if u.Seq != seq {", "		if u.Seq < seq {"), real("TestRule7")},
	{7, "a repeated seq parks", one(counterGo, "		if u.Seq != seq {", "		if u.Seq > seq {"), real("TestRule7")},
	{7, "a missing progress record parks", one(foldWorkerGo, "	if !ok {\n		return kafka.Position{}, stream.Park(", "	if !ok {\n		w.layout = (&schema.Progress{Partitions: 1}).Layout()\n		return kafka.Position{}, nil\n		return kafka.Position{}, stream.Park("), real("TestRule7")},
	{7, "progress that disagrees with the committed offset parks", one("processor/fold/table/disagreement.go",
		"	if err != nil || !ok || committed == p.NextOffset {", "	if err != nil || !ok || committed >= 0 {"), real("TestRule7")},
	{7, "another topic id parks", one(foldWorkerGo, "		if t.id != have.ID {", "		if false {"), real("TestRule7")},
	{7, "another cluster id parks", one(foldWorkerGo, "	if p.ClusterID != topics.ClusterID {", "	if false {"), real("TestRule7")},
	{7, "another partition count parks", one(foldWorkerGo, "		if p.Partitions != have.Partitions {", "		if false {"), real("TestRule7")},
	{7, "an offset out of range parks", one(foldWorkerGo, "	case p.NextOffset < start || p.NextOffset > end:", "	case false:"), real("TestRule7")},
	{7, "the leader epoch is checked when consuming starts", one(stepGo,
		"	return position, checkTruncation(ctx, p.cl, p.assignment.Topic, p.assignment.Partition, position)\n", "	return position, nil\n"), real("TestRule7")},
	{7, "data lost by an unclean election parks", one("stream/errors.go",
		"end >= 0 && end < pos.Offset {", "false && end < pos.Offset {"), real("TestRule7")},
	{7, "a missing position next to existing counts parks", one("sql/position.go",
		"	if counted || len(rows) > 0 {", "	if false {"), real("TestRule7")},
	{7, "a database that is another shard parks", one("sql/shards.go", "	case row.Shard != given.Index || max(1, row.Shards) != given.Count():\n", "	case false:\n"), test("sql", "TestOtherShardsAreRejected")},
	{7, "a database's shard is checked before its position is read", one("sql/position.go",
		"			if err := checkShard(ctx, tx, s.Shard()); err != nil {\n				return err\n			}\n", ""), test("sql", "TestOtherShardsAreRejected")},
	{7, "no database is assigned a shard before all have been checked", one("sql/shards.go",
		"	if err := errors.Join(errs...); err != nil {\n		return err\n	}\n", ""), test("sql", "TestShardErrorsAreReportedTogether")},
	{7, "one database is not two shards", one("sql/shards.go", "		if !free.Bool {", "		if false {"), test("sql", "TestDatabaseNamedTwiceIsRejected")},
	{7, "a database that has counts cannot become a new shard", one("sql/shards.go", "		} else if used {", "		} else if false {"), test("sql", "TestDatabaseFromBeforeSharding")},
	{7, "MySQL of another topic parks", one("sql/position.go",
		"	if topicID == s.topicID() && partitions == s.Partitions {", "	if true {"), real("TestRule7")},
	{7, "a parked partition is retried", one(stepGo, "state == StateParked && time.Now().Before(p.retryAt):", "state == StateParked:"), real("TestRule7")},
	{7, "the other partitions continue: a worker's error does not stop goka", one(stepGo,
		"	default:\n		p.fail(err)\n	}\n	return true\n", "	default:\n		panic(err)\n	}\n	return true\n"), real("TestRule7")},
	{7, "the action is reported", one("stream/errors.go", "Action: action, Err: err}", "Err: err}"), real("TestRule7")},
	{7, "nothing is consumed while parked", one(queueGo, "	case !q.mu.wanted || q.mu.err != nil:\n		paused = true\n", ""), test("stream", "TestFlow")},

	{8, "murmur2 of the key", one("schema/layout.go", "seed = 0x9747b28c", "seed = 0"), test("schema", "TestPartitionForIsKafkasDefault")},
	{8, "the sign bit is cleared, not negated", one("schema/layout.go", "murmur2(key) & 0x7fffffff", "-murmur2(key)"), test("schema", "TestPartitionForIsKafkasDefault|TestPartitionForKnownAnswers")},
	{8, "the stored partition count decides", one(foldWorkerGo, "w.progress, w.layout, w.regions = progress, progress.Layout(), ", "w.progress, w.layout, w.regions = progress, schema.Layout{Partitions: 1}, "), simulation},
	{1, "regions are bounded by the log", one(classifyGo, "	if e.Region, known = v.Regions.Of(e.Region, rec.Offset); !known {", "	if _, known = v.Regions.Of(e.Region, rec.Offset); !known {"), test("processor", "TestRegionsChangeFromAnOffsetOn")},
	{1, "changed regions hold from the next event on", one("ops/topics/regions.go", "p.Regions.With(p.NextOffset, extra, start)", "p.Regions.With(start, extra, start)"), test("processor", "TestRegionsChangeFromAnOffsetOn")},
	{1, "a region rule holds from its offset on", one("schema/region_rules.go", "		case offset < rule.from:\n			continue\n", ""), test("processor", "TestRegionsChangeFromAnOffsetOn")},
	{1, "a rebuild folds events by the regions of their offsets", one("ops/rebuild/events.go", "	if r.classified.Regions, err = regions.Parse(); err != nil {", "	if _, err = regions.Parse(); err != nil {"), test("processor", "TestRegionsChangeFromAnOffsetOn")},
	{8, "an event in the wrong partition is forwarded", one(classifyGo, "	if owner := layout.PartitionOf(e.PostID, e.UserID); owner != rec.Partition {", "	if owner := layout.PartitionOf(e.PostID, e.UserID); false {"), simulation},
	{8, "forwarded with its resolved time", one(classifyGo, "		Value:     schema.AppendEvent(nil, e),\n", "		Value:     rec.Value,\n"), simulation},
	{8, "forwarded with the canonical key", one(classifyGo, "		Key:       layout.AppendKey(nil, e.PostID, e.UserID),\n", "		Key:       rec.Key,\n"), test("processor/fold/classify", "TestMisroutedEventIsForwardedWithItsTimeAndRegion")},
	{8, "forwarded with a header that names its origin", one(classifyGo, "{{Key: schema.HeaderForwarded, ", "{{Key: \"kudos.other\", "), simulation},
	{8, "an event that is still misrouted is dead-lettered", one(classifyGo, "	if from := Header(rec, schema.HeaderForwarded); from != \"\" && forwardedIn(from) >= uint64(v.Layouts) {", "	if false {"), simulation},

	{9, "a view is written only up to a progress record", one(laneGo,
		"		if string(rec.Key) == schema.StateProgressKey {\n			return i + 1\n", "		if rec != nil {\n			return i + 1\n"), test("reader/view", "TestEachAnswerIsAsOfItsPosition")},
	{9, "a view's position and data change atomically", one(viewGo, "	p.snap.Lock()\n	defer p.snap.Unlock()\n", ""), test("stream", "TestViewIsNotReadBetweenWriteAndApplied")},
	{9, "a giant transaction is not read before it is complete", one(viewGo, "		p.shut(errGiant)\n", ""), test("stream", "TestViewOfAGiantTransaction")},
	{9, "a view that may miss deletions starts over", one(viewGo, "c.MissesDeletions(p.held)", "c.MissesDeletions(nil)"), test("reader/view", "TestReaderThatMissedAMove")},
	{9, "a view that is filled from the start does not", one(viewGo, "!p.fresh && ", ""), test("reader/view", "TestNewReaderOfSeveralLayouts")},
	{9, "a partition that is not ready is not read", one(viewGo, "	if !p.ready {\n		return p.notReady", "	if false {\n		return p.notReady"), test("stream", "TestViewOfAGiantTransaction")},
	{9, "a partition whose store is damaged is not ready", one(viewGo, "why := store.Unusable(p.store); why != nil {", "why := store.Unusable(p.store); false {"), test("stream", "TestViewOfACorruptedStore")},
	{9, "a view that cannot continue is not read", one(viewGo, "		p.shut(err)\n", ""), test("reader/view", "TestUndecodableUpdateParksItsPartition")},
	{9, "a view of a recreated log is rebuilt", one(catchUpGo, "	case ok && id != s.id:", "	case false:"), test("stream", "TestViewOfARecreatedTopic")},
	{9, "a view checks by itself whether its log was recreated", one("stream/follow.go", "if err := sameTopic(s.ctx, s.cl, s.topic, s.log, s.count); err != nil {", "if err := error(nil); err != nil {"), test("stream", "TestViewNoticesARecreatedTopic")},
	{9, "records of another log are not passed to a follower", one("stream/poll.go", "t.TopicID != s.log.TopicID &&", "false &&"), test("stream", "TestFollowerOfATopicRecreatedWhileItOpens")},
	{9, "a loss that arrives in one poll with later records is detected", one("stream/poll.go", "if (t.Partitions[i].Err != nil) == failed {", "if failed {"), test("stream", "TestDataLossIsHandledBeforeLaterRecords")},
	{9, "streams are notified when anything may have changed", one(viewGo, "		p.copy.Published(true)\n", ""), test("stream", "TestViewOfAGiantTransaction")},
	{9, "a response waits for min_offset", one(laneGo, "return p.NextOffset >= want.Offset })", "return p.NextOffset >= min(want.Offset, 0) })"), test("reader/view", "TestWaitIsBounded")},
	{9, "like-counts has no progress while counts are missing", one(batchGo, "			if len(w.uncounted) > 0 {\n				counts.Value = nil\n			}\n", ""), simulation},
	{9, "like-counts is complete only if it ends with the state table's progress", one("processor/fold/table/progress.go",
		"return last != nil && *last == *of, err", "return last != nil && last.Partitions > 0, err"), simulation},
	{9, "missing counts come before what the same transaction changes", []edit{
		{batchGo, "	if len(missing) > 0 {\n		x.Send(missing) // before what the batch changes\n	}\n", ""},
		{batchGo, "	out.folded, out.committing =", "	if len(missing) > 0 {\n		x.Send(missing)\n	}\n	out.folded, out.committing ="}}, simulation},
	{9, "posts that have left the state table leave like-counts", one(likeCountsGo,
		"[]string{schema.TopicCounts, schema.TopicState}", "[]string{schema.TopicState}"), test("processor", "TestLikeCountsAreCompleted")},
	{9, "incomplete counts are not read", one(laneGo, "	if c.staged.known = rec.Value != nil; c.staged.known {", "	if c.staged.known = true; rec.Value != nil {"), test("reader/view", "TestIncompleteCounts")},
	{9, "recent counts change with the store", one(countsGo, "		c.counts.recent.put(c.opened, change.PostID, change.Counts)\n", "		_ = change\n"), test("reader/view", "TestRecentCountsAreAsOfThePosition")},
	{9, "counts read before a transaction are not cached after it", one(countsGo, "	if of.(*countsCopy).moved == then.moved {", "	if true {"), test("reader/view", "TestOlderCountsAreNotCached")},
	{9, "recent counts are of the store that is open", one(countsGo, "c.opened = Totals{}, nil, c.counts.recent.opened.Add(1)", "c.opened = Totals{}, nil, uint64(c.partition)+1"), test("reader/view", "TestAnotherStateTable")},
	// A reader on the models: crashes, lost and old disks, torn and compacted logs.
	{9, "a transaction ends with its progress record", one(laneGo, "		if string(rec.Key) == schema.StateProgressKey {\n			return i + 1\n", "		if rec.Key != nil {\n			return i + 1\n"), simulation},
	{9, "a view's store writes data and position at once", one("stream/store/store.go", "	if err := w.s.commitBatch(w.b, w.s.id, offset); err != nil {\n",
		"	if err := w.s.commitBatch(w.s.db.NewBatch(), w.s.id, offset); err != nil {\n		return err\n	}\n	if flushed, err := w.s.db.AsyncFlush(); err == nil {\n		<-flushed\n	}\n	if err := w.s.commitBatch(w.b, w.s.id, offset); err != nil {\n"), simulation},
	{9, "a view's store does not cover what is held", one(viewGo, "		covered = p.held[whole].Offset - 1\n", "		covered = p.held[whole].Offset\n"), test("stream", "TestViewAppliesWholeTransactions")},
	{9, "a view's store covers no record that it lacks", one(viewGo, "	covered := next - 1\n", "	covered := next\n"), simulation},
	{9, "what is held is applied with the rest of its transaction", one(viewGo, "	p.held = append([]*kgo.Record(nil), p.held[whole:]...) //", "	p.held = nil //"), simulation},
	{9, "what has no progress record is not answered", one(laneGo, "	if !c.state.known {\n		return laneState{}, nil, &NotReadyError{", "	if false {\n		return laneState{}, nil, &NotReadyError{"), simulation},
	{9, "what compaction has left is applied up to the end at once", one(viewGo, "p.gap && next < p.end {\n			whole = 0\n", "false {\n			whole = 0\n"), test("stream", "TestViewOfACompactedLog")},
	{9, "a view that stays readable while it is opened again shows its end only", one(viewGo, "return p.take(f.Records, f.Next, f.End, true) },", "return p.take(f.Records, f.Next, f.End, false) },"), test("stream", "TestViewThatIsOpenedAgainShowsOnlyItsEnd")},
	{9, "an event that was forwarded is covered by its owner", one("reader/request.go", "append(want, ends...)", "append(want, ends[:0]...)"), test("reader", "TestMinOffsetOfAForwardedEvent")},
	{9, "one of several owners may have forwarded an event", one("reader/request.go", " && a.counts.Layout().Number == 0", ""), test("reader", "TestMinOffsetWithSeveralOwners")},
	{9, "a reader that missed a move starts over", one(laneGo, "	return c.state.known && c.last(records).Layouts != c.state.progress.Layouts\n", "	return false\n"), test("reader/view", "TestReaderThatMissedAMove")},
	{9, "a partition waits for the layout by which it is asked", one(reactionsGo,
		"	if err := a.awaitLayout(q, partition, of.Layout); err != nil {\n		return nil, err\n	}\n", ""), test("reader", "TestPeerWaitsForTheLayout")},
	{9, "another reader is not behind the previous page", one(reactionsGo,
		"of.Covered = max(of.Covered, from.asOf.Offset)", "_ = of"), test("reader", "TestPagesAreFromTheirPositionOn")},
	{9, "a question to a partition waits for min_offset", one(reactionsGo,
		"				of.Covered = max(of.Covered, want.Offset)\n", ""), test("reader", "TestPeersAreAsked|TestManyReactions|TestReaction")},
	{9, "a viewer's reaction that changes without the counts is noticed", one("reader/live/viewer.go",
		"			case <-time.After(interval):\n", ""), test("reader/live", "TestReactionsOfTheViewer")},
	{9, "a viewer's reactions are not older than the counts sent", one("reader/live/viewer.go",
		"		list, err := ask(covered)\n", "		list, err := ask(covered[:0])\n"), test("reader/live", "TestReactionsOfTheViewer")},
	{9, "replicas stay until the others can be read", one(replicasGo,
		"				placed[p] = append(placed[p], i)\n			}\n		}\n	}\n	return placed\n}\n\n// owners",
		"				_ = i\n			}\n		}\n	}\n	return placed\n}\n\n// owners"), test("stream", "TestReplicasAreKeptUntilOthersAreReady")},
	{9, "views outlive the requests that read them", one("httpserver/server.go", "context.WithCancel(context.WithoutCancel(ctx))", "context.WithCancel(ctx)"), test("reader", "TestReaderShutdownAnswersRequestsInFlight")},
	{7, "nothing is folded while reactions move to other partitions", one(foldWorkerGo,
		"	if p.Migrating {\n", "	if false {\n"), test("processor", "TestRepartitionResumesWhereItWasStopped")},
	{6, "moved reactions are not counted again", one(counterGo, "u.Moved && w.db", "false && w.db"), test("processor", "TestMovedReactionsAreNotCountedAgain")},
	{8, "a misrouted event is forwarded once per layout", one(classifyGo, "forwardedIn(from) >= uint64(v.Layouts)", "true"), test("processor/fold/classify", "TestEventIsForwardedOncePerLayout")},
	{8, "every event in the new partition of a moved reaction is later", one("ops/repartition/move.go", "	pair.Offset = -1\n", ""), test("processor", "TestRepartition")},
	// Guards that were once removed without the tests of their package noticing. Assignment.
	{2, "a partition that is assigned to another process is not fenced", one(groupGo, "err != nil || m == nil {", "m == nil {"), test("stream", "TestStayingPartitionsAreNotInterrupted")},
	{2, "a partition that stays is fenced in the current generation", one(groupGo,
		"	g.current.Store(m)\n", "	g.current.CompareAndSwap(nil, m)\n"), test("stream", "TestStayingPartitionsAreNotInterrupted")},
	{2, "a fenced partition is not opened again in the same generation", one(stepGo,
		"state == StateFenced && generation == p.workedIn:", "state == StateFenced && false:"), test("stream", "TestFencedPartitionIsGivenUp")},
	{7, "a fenced partition is opened in the next generation", one(stepGo,
		"state == StateFenced && generation == p.workedIn:", "state == StateFenced:"), test("stream", "TestFencedPartitionIsGivenUp")},
	{7, "a request for an assignment starts a rebalance", one(groupGo, "	g.balancer.requests.Add(1)\n", ""), test("stream", "TestOlderVersionLeads")},
	{7, "a partition that stays works on through a rebalance", []edit{
		{groupGo, "if !slices.Contains(g.balancer.assigned, n) {", "if !slices.Contains([]int32{}, n) {"},
		{groupGo, "if before[n] == nil {", "if true {"}}, test("stream", "TestStayingPartitionsAreNotInterrupted")},
	{7, "partitions that stay restart when their number changes", one(groupGo,
		"	s.work.Go(func() { s.watchTopic(g.opts.watchInterval, cancel) })\n", ""), test("processor", "TestOtherPartitionCountStopsEverything")},
	{7, "groups with the same processes assign the same", one("stream/balancer.go",
		"[]byte(ownsNothing)); ok {", "[]byte(ownsNothing)); ok && false {"), test("stream", "TestBalancerAlignsGroups")},
	{7, "a process has at most one partition more than another", one("stream/balancer.go",
		"n > share, n == share && more == 0:", "n > share:"), test("stream", "TestBalancer")},
	{7, "a damaged process id is replaced", one("stream/balancer.go", "processID.Match(id)", "len(id) > 0"), test("stream", "TestProcessIDStays")},
	{7, "older versions are in the same group", one("stream/balancer.go", `return "sticky"`, `return "kudos"`), test("stream", "TestOlderVersionLeads")},
	{2, "the ranker's table: changes by another owner are not damage", one("ranker/table.go",
		"		if taken := t.txn.CheckMember(ctx); taken != nil {\n			return kafka.Position{}, taken\n		}\n", ""), test("ranker", "TestTableOfAnotherOwnerIsNotDamage")},
	{2, "Kafka aborts a dead owner's transaction after the configured timeout", one("stream/kafka/options.go",
		"		kgo.TransactionTimeout(opts.Timeout),\n", ""), test("stream/kafka", "TestTransactionTimeoutIsTheOneGiven")},
	{3, "a filter with unreadable keys does not decide", one(bufferSpillGo,
		"build.ok = err == nil && !isClosed", "build.ok = (err == nil || true) && !isClosed"), test("stream/store", "TestFilterWithUnreadableKeys")},
	{3, "each record of a split update has the counts after itself", one("schema/update.go", "u.Counts = counts.Minus(rest)", "u.Counts = counts"), test("processor", "TestLargeBatchDoesNotMixRecords")},
	{4, "a rebuild is swapped in only if the server confirms it", one("sql/shadow.go", "	return hasNumber(err, errNoSuchTable)\n", "	return err != nil\n"), test("sql", "TestShadowLooksWhetherItWasSwapped")},
	{4, "after a lost response a rebuild checks whether it was swapped in", one("sql/shadow.go",
		"h.renamed(ctx) {", "h.renamed(ctx) && false {"), test("sql", "TestShadowLooksWhetherItWasSwapped")},
	{6, "a rebuild's rows are resent after a lock conflict", one("sql/shadow.go",
		"		if isConflict(err) {\n			return retry",
		"		if hasNumber(err, errDeadlock) {\n			return retry"), test("sql", "TestShadowSendsRowsAgainAfterALockConflict")},
	{6, "a rebuild's rows are not resent forever", one("sql/shadow.go", "retry.WithMaxRetries(writeRetries, ", "retry.WithMaxRetries(writeRetries+1, "), test("sql", "TestShadowGivesUp")},
	{6, "a RENAME that conflicts with a transaction is retried", one("sql/shadow.go",
		"		if isConflict(err) {\n			h.store.log",
		"		if hasNumber(err, errLockWaitTimeout) {\n			h.store.log"), test("sql", "TestShadowSwapsOnceTheTablesAreFree")},
	{7, "nothing is fetched from a partition that is not open", one("stream/session.go",
		"	s.cl.PauseFetchPartitions(map[string][]int32{s.topic: {n}}) //", "	//"), test("stream", "TestFetchesStartAfterOpen")},
	{7, "nothing starts after the session has ended", one(stepGo, "	case ctx.Err() != nil, state", "	case state"), test("stream", "TestNothingStartsAfterShutdown")},
	{4, "records that arrive before the client has sought are dropped", one(queueGo, "	case q.mu.seek != nil || !q.mu.wanted", "	case !q.mu.wanted"), test("stream", "TestStaleListsAreDropped")},
	{2, "a partition is fenced whenever it is opened", []edit{
		{txnGo, "	t.Close()\n	for _, id := range", "	if t.cls != nil {\n		return nil\n	}\n	for _, id := range"},
		{txnGo, "	if err := x.commit(next); err != nil {\n		t.Close()\n", "	if err := x.commit(next); err != nil {\n"},
		{txnGo, "	x.cancel()\n	x.t.Close()\n", "	x.cancel()\n"},
		{stepGo, "	p.worker.Close()\n	p.queue.close()\n", "	p.queue.close()\n"}}, simulation},
	{7, "a client is nudged to fetch after a seek", one(queueGo, "		q.nudge(time.Now(), nudgeAfter)\n", ""), test("stream", "TestFlowRemindsAfterASeek")},
	{7, "the ranker's table: a position past the end parks", one("ranker/table.go", "p.NextOffset < start || p.NextOffset > end", "p.NextOffset < start"), test("ranker", "TestTableOutOfRangeParks")},
	{9, "a flush of the bulk sender waits for every response", one("producer/bulk/sender.go",
		"	s.answers.Wait() //", "	//"), test("producer/bulk", "TestFlushWaitsForEveryAnswer")},
	// What the simulation does not run: the checks at the start, the takeover of a partition, and parks.
	{7, "a position past the end of likes parks", one(foldWorkerGo,
		"p.NextOffset < start || p.NextOffset > end", "p.NextOffset < start || false && p.NextOffset > end"), test("processor", "TestFoldParksPastTheEndOfLikes")},
	{7, "no first progress record and no fence if the state table is not empty", one(firstGo,
		"without need.\n	"+isEmpty, "without need.\n	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || false && !empty {\n"), test("processor", "TestFirstProgressIsOfAnEmptyStateTable")},
	{2, "the state table is checked again after fencing, before the first progress record", one(firstGo,
		"defer cl.Close()\n	"+isEmpty, "defer cl.Close()\n	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || false && !empty {\n"), test("processor", "TestFirstProgressIsOfAnEmptyStateTable")},
	{7, "the fold does not report a successor's changes as damage", one(foldWorkerGo,
		"	if taken := w.CheckMember(ctx); taken != nil {\n		return taken\n	}\n", ""), test("processor", "TestTakeoverIsNotDamage")},
	{6, "a position that another process moved is not damage", one(counterGo,
		`return stream.Reopen("the position in MySQL has moved")`, `return stream.Park(stream.CauseMySQL, table.ActionRebuild, "%w", err)`), test("processor", "TestTakeoverIsNotDamage")},
	{6, "a position that another process moved while this one was idle is not damage", one(counterGo,
		`return stream.Reopen(fmt.Sprintf("MySQL is`, `return stream.Park(stream.CauseMySQL, table.ActionRebuild, "%s", fmt.Sprintf("MySQL is`), test("processor", "TestTakeoverIsNotDamage")},
	{7, "a state table is rebuilt from all folded events", one("ops/rebuild/events.go",
		"max(progress.NextOffset, committed)", "min(progress.NextOffset, committed)"), test("ops/rebuild", "TestReplayStopsAtTheFoldedOffset")},
	{7, "a rewound state table is not searched for losses", one("ops/rebuild/repair.go",
		"	if other != nil && !other.OffsetOnly && p.UpdatesID", "	if false && p.UpdatesID"), test("ops/rebuild", "TestInvalidArguments")},
	{7, "MySQL is not rebuilt from the state table of another like-updates", one("ops/rebuild/mysql.go",
		"case p.UpdatesID != c.Source.TopicID:", "case false:"), test("ops/rebuild", "TestRebuildRejectsAStateTableOfOtherTopics")},
	{7, "a rebuild is not swapped in if like-updates was recreated meanwhile", one("ops/rebuild/mysql.go",
		"if topics.ByName[schema.TopicUpdates].ID != c.Source.TopicID {", "if false && topics.ByName[schema.TopicUpdates].ID != c.Source.TopicID {"), test("ops/rebuild", "TestUpdatesRecreatedWhileMySQLIsRebuilt")},
	{3, "markers are written only to a transaction too old for any coordinator", one("ops/transactions/transactions.go",
		"if time.Since(o.LastWrite) > maxTimeout {", "if time.Since(o.LastWrite) > 0 {"), test("ops/transactions", "TestOnlyAnOldTransactionHangs")},
	{3, "markers are written only to a transaction that did not move", one("ops/transactions/transactions.go",
		"return reflect.DeepEqual(n.in, o.in)", "return reflect.DeepEqual(n.in, n.in)"), test("ops/transactions", "TestOnlyAnOldTransactionHangs")},
	{7, "counts that may have been compacted are unknown", one("ops/audit/updates.go",
		"age > r.c.compactionLag", "false && age > r.c.compactionLag"), test("ops/audit", "TestCountsThatMayBeCompactedAreUnknown")},
	{7, "a negative count is a difference even if both sides agree", one("ops/audit/compare.go", "return c.Likes < 0 || c.Dislikes < 0", "return false && c.Likes < 0"), test("ops/audit", "TestCompare")},
	{7, "a partition parks if likes.dlt is missing", one(foldWorkerGo, "schema.TopicCounts, schema.TopicDLT)", "schema.TopicCounts)"), test("processor", "TestFoldParksAtMissingTopics")},
	{6, "a node of a cluster is not written to", one("sql/writers.go", "is[\"wsrep_on\"] == \"ON\" &&", "false &&"), test("sql", "TestClusterOf")},
	{7, "a ranker parks after a change of its regions", one("ranker/local.go", "clock.regions != w.config.RegionsHash()", "clock.regions == 1"), test("ranker", "TestOtherRegionsPark")},
	{7, "a ranker parks if partitions have disappeared", one("ranker/merge.go", "if len(w.sources) > n {", "if len(w.sources) > n && n < 0 {"), test("ranker", "TestFewerPartitionsPark")},
}
