package main

// Guards that somebody took out who had not written them, while the tests of their package
// still passed. Each is caught in its own package, not only by the whole system.
func init() {
	mutants = append(mutants, []mutant{
		{2, "no rebalance while the poll loop works with its session", one("stream/group.go",
			"		kgo.BlockRebalanceOnPoll(),\n", ""), test("stream", "TestRebalanceWaitsForThePollLoop")},
		{2, "the ranker's table: what another owner did is no damage", one("ranker/table.go",
			"		if taken := t.txn.CheckMember(ctx); taken != nil {\n			return kafka.Position{}, taken\n		}\n", ""),
			test("ranker", "TestTableOfAnotherOwnerIsNoDamage")},
		{2, "Kafka gives a dead owner's transaction up after the time that is set", one("stream/kafka/clients.go",
			"		kgo.TransactionTimeout(opts.Timeout),\n", ""), test("stream/kafka", "TestTransactionTimeoutIsTheOneGiven")},
		{3, "a filter whose keys could not all be read does not decide", one(bufferSpillGo,
			"build.ok = err == nil && !isClosed", "build.ok = (err == nil || true) && !isClosed"),
			test("stream/store", "TestFilterWithoutKeysThatCouldNotBeRead")},
		{4, "a rebuild is in place only if the server says so", one("sql/shadow.go",
			"	return hasNumber(err, errNoSuchTable)\n", "	return err != nil\n"),
			test("sql", "TestShadowLooksWhetherItWasSwapped")},
		{4, "after a lost answer a rebuild looks whether it is in place", one("sql/shadow.go",
			"h.renamed(ctx) {", "h.renamed(ctx) && false {"), test("sql", "TestShadowLooksWhetherItWasSwapped")},
		{6, "a rebuild's rows are sent again after a lock conflict", one("sql/shadow.go",
			"		if isConflict(err) {\n			return retry",
			"		if hasNumber(err, errDeadlock) {\n			return retry"), test("sql", "TestShadowSendsRowsAgainAfterALockConflict")},
		{6, "a rebuild's rows are not sent again for ever", one("sql/shadow.go",
			"retry.WithMaxRetries(writeRetries, ", "retry.WithMaxRetries(writeRetries+1, "), test("sql", "TestShadowGivesUp")},
		{6, "a RENAME that meets a transaction is tried again", one("sql/shadow.go",
			"		case isConflict(err):\n			h.store.log",
			"		case hasNumber(err, errLockWaitTimeout):\n			h.store.log"), test("sql", "TestShadowSwapsOnceTheTablesAreFree")},
		{7, "nothing is fetched of a partition that is not open", one("stream/group.go",
			"	cl.PauseFetchPartitions(s.claims()) //", "	//"), test("stream", "TestNothingIsFetchedBeforeItIsOpened")},
		{7, "nothing is begun when the session is over", one(stepGo,
			"	case ctx.Err() != nil, state", "	case state"), test("stream", "TestNothingIsBegunAfterTheEnd")},
		{4, "what arrives before the client was moved is dropped", one(queueGo,
			"	case q.mu.seek != nil || !q.mu.wanted", "	case !q.mu.wanted"), test("stream", "TestWhatIsStaleIsDropped")},
		{2, "a partition is fenced whenever it is opened", []edit{
			{txnGo, "	t.Close()\n	cl, err := t.opts", "	if t.cl != nil {\n		return nil\n	}\n	cl, err := t.opts"},
			{stepGo, "	p.worker.Close()\n	p.queue.close()\n", "	p.queue.close()\n"}}, simulation},
		{7, "a client that was moved is reminded to fetch", one(queueGo,
			"q.mu.seek, q.nudgeAt = nil, time.Now().Add(nudgeAfter)", "q.mu.seek = nil"),
			test("stream", "TestFlowRemindsAfterASeek")},
		{7, "the ranker's table: a position behind the end parks", one("ranker/table.go",
			"p.NextOffset < start || p.NextOffset > end", "p.NextOffset < start"), test("ranker", "TestTableOutOfRangeParks")},
		{9, "a bulk sender has every answer before it says so", one("producer/bulk/sender.go",
			"	s.answers.Wait() //", "	//"), test("producer/bulk", "TestFlushWaitsForEveryAnswer")},
	}...)
}
