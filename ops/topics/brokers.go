package topics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// goodValues of a broker's setting are from least to most, where 1 is true. Others have a cost.
type goodValues struct {
	least, most int64
	cost        string
}

// WarnOfBrokers returns a line for each value of a broker's setting that costs latency or safety, given the timeouts in
// the roles' settings and the replication factor; or why it cannot tell.
func WarnOfBrokers(ctx context.Context, cl *kadm.Client, sessions, transactions []time.Duration, replicas int16,
) (lines []string) {
	const noLimit, noTransaction = math.MaxInt64, "transactions with a role's transaction_timeout fail"
	const noSession = "groups reject a role's session_timeout"
	const lost = "__consumer_offsets inherits it; a partition parks if a failover loses its offset"
	settings := map[string]goodValues{
		"add.partitions.to.txn.retry.backoff.ms":     {0, 1, "a partition's next transaction waits that long"},
		"add.partitions.to.txn.retry.backoff.max.ms": {100, noLimit, "after that, a transaction waits 250 ms"},
		"group.initial.rebalance.delay.ms":           {0, 3000, "a group's first process waits that long"},
		"group.max.session.timeout.ms":               {slices.Max(sessions).Milliseconds(), noLimit, noSession},
		"group.min.session.timeout.ms":               {0, slices.Min(sessions).Milliseconds(), noSession},
		"log.flush.interval.messages":                {1000, noLimit, "one fsync per that many records"},
		"min.insync.replicas":                        {int64(min(2, max(1, replicas-1))), noLimit, lost},
		"replica.fetch.min.bytes":                    {0, 1, "acks=all may wait for replica.fetch.wait.max.ms"},
		"transaction.max.timeout.ms":                 {slices.Max(transactions).Milliseconds(), noLimit, noTransaction},
		"transaction.partition.verification.enable":  {1, 1, "a late record can leave a transaction open forever"},
		"transactional.id.expiration.ms":             {86_400_000, noLimit, "partitions idle for longer open again"},
		"unclean.leader.election.enable":             {0, 0, lost},
	}
	metadata, metadataErr := cl.BrokerMetadata(ctx)
	brokers, err := cl.DescribeBrokerConfigs(ctx, metadata.Brokers.NodeIDs()...)
	names := map[string][]string{} // of brokers, by line
	for _, b := range brokers {
		err = errors.Join(err, b.Err)
		for _, c := range b.Configs {
			if line := settings[c.Key].warning(c); line != "" {
				names[line] = append(names[line], b.Name)
			}
		}
	}
	for line, of := range names {
		slices.Sort(of)
		lines = append(lines, fmt.Sprintf("broker %s: %s", strings.Join(of, ", "), line))
	}
	slices.Sort(lines)
	if err := errors.Join(metadataErr, err); err != nil {
		lines = append(lines, fmt.Sprintf("brokers are not checked; this needs DESCRIBE_CONFIGS of the cluster: %v", err))
	}
	return lines
}

// warning is empty for a good value, and for one that is not a number.
func (g goodValues) warning(c kadm.Config) string {
	value := c.MaybeValue()
	n, err := strconv.ParseInt(strings.NewReplacer("true", "1", "false", "0").Replace(value), 10, 64)
	best := min(max(n, g.least), g.most)
	if err != nil || best == n || g.cost == "" {
		return ""
	}
	var better any = best
	if value == "true" || value == "false" {
		better = best == 1
	}
	return fmt.Sprintf("%s is %s, better %v: %s", c.Key, value, better, g.cost)
}
