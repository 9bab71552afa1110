package main

// Guards that somebody took out who had not written them, while the tests of their package
// still passed. Each is caught in its own package, not only by the whole system.
func init() {
	mutants = append(mutants, []mutant{
		{2, "no rebalance while the poll loop works with its session", one("stream/group.go",
			"		kgo.BlockRebalanceOnPoll(),\n", ""), test("stream", "TestRebalanceWaitsForThePollLoop")},
		{2, "the ranker's table: what another owner did is no damage", one("ranker/table.go",
			"	if taken := t.txn.CheckMember(ctx); taken != nil {\n		return kafka.Position{}, taken\n	}\n", ""),
			test("ranker", "TestTableOfAnotherOwnerIsNoDamage")},
		{2, "Kafka gives a dead owner's transaction up after the time that is set", one("stream/kafka/clients.go",
			"		kgo.TransactionTimeout(opts.Timeout),\n", ""), test("stream/kafka", "TestTransactionTimeoutIsTheOneGiven")},
		{3, "a filter whose keys could not all be read does not decide", one("stream/store/buffer_open.go",
			"build.ok = iter.Close() == nil", "_ = iter.Close()\n		build.ok = true"),
			test("stream/store", "TestFilterWithoutKeysThatCouldNotBeRead")},
		{4, "a rebuild is in place only if the server says so", one("sql/shadow.go",
			"	if hasNumber(err, errNoSuchTable) {\n		return true, nil\n", "	if err != nil {\n		return true, nil\n"),
			test("sql", "TestShadowLooksWhetherItWasSwapped")},
		{4, "after a lost answer a rebuild looks whether it is in place", one("sql/shadow.go",
			"lookErr == nil && done {", "lookErr == nil && done && false {"), test("sql", "TestShadowLooksWhetherItWasSwapped")},
		{6, "a rebuild's rows are sent again after a lock conflict", one("sql/shadow.go",
			"		if hasNumber(err, errDeadlock) || hasNumber(err, errLockWaitTimeout) {\n			return retry",
			"		if hasNumber(err, errDeadlock) {\n			return retry"), test("sql", "TestShadowSendsRowsAgainAfterALockConflict")},
		{6, "a rebuild's rows are not sent again for ever", one("sql/shadow.go",
			"retry.WithMaxRetries(writeRetries, ", "retry.WithMaxRetries(writeRetries+1, "), test("sql", "TestShadowGivesUp")},
		{6, "a RENAME that meets a transaction is tried again", one("sql/shadow.go",
			"		case hasNumber(err, errLockWaitTimeout), hasNumber(err, errDeadlock):\n",
			"		case hasNumber(err, errLockWaitTimeout):\n"), test("sql", "TestShadowSwapsOnceTheTablesAreFree")},
		{7, "a new session begins with nothing paused", one("stream/group.go",
			"	cl.ResumeFetchPartitions(s.Claims()) //", "	//"), test("stream", "TestNothingIsPausedInANewSession")},
		{7, "a client that was moved is reminded to fetch", one("stream/claim_flow.go",
			"c.mu.seek, c.mu.kickAt = false, time.Now().Add(kickAfter)", "c.mu.seek = false"),
			test("stream", "TestClaimFlowRemindsAfterASeek")},
		{7, "the ranker's table: a position behind the end parks", one("ranker/table.go",
			"p.NextOffset < start || p.NextOffset > end", "p.NextOffset < start"), test("ranker", "TestTableOutOfRangeParks")},
		{9, "a bulk sender has every answer before it says so", one("producer/bulk/sender.go",
			"	s.answers.Wait() //", "	//"), test("producer/bulk", "TestFlushWaitsForEveryAnswer")},
	}...)
}
