package topics

import (
	"cmp"
	"context"
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

// CheckBrokers returns a line for each setting with a cost, or why it cannot tell. It gets the timeouts of the roles.
func CheckBrokers(ctx context.Context, cl *kadm.Client, session, txn []time.Duration, replicas int16) (lines []string) {
	const noLimit, rejected, lost = math.MaxInt64, "Kafka rejects a role's timeout", "lost offsets park partitions"
	const torn = "torn transactions park partitions"
	settings := map[string]goodValues{
		"add.partitions.to.txn.retry.backoff.ms":     {0, 1, "a partition's next transaction waits that long"},
		"add.partitions.to.txn.retry.backoff.max.ms": {100, noLimit, "after that, a transaction waits 250 ms"},
		"group.initial.rebalance.delay.ms":           {0, 3000, "a group's first process waits that long"},
		"group.max.session.timeout.ms":               {slices.Max(session).Milliseconds(), noLimit, rejected},
		"group.min.session.timeout.ms":               {0, slices.Min(session).Milliseconds(), rejected},
		"log.cleaner.enable":                         {1, 1, "compacted topics grow without bound"},
		"log.flush.interval.messages":                {1000, noLimit, "one fsync per that many records"},
		"min.insync.replicas":                        {int64(min(2, max(1, replicas-1))), noLimit, lost},
		"offsets.topic.replication.factor":           {int64(min(3, replicas)), noLimit, lost},
		"replica.fetch.min.bytes":                    {0, 1, "acks=all may wait for replica.fetch.wait.max.ms"},
		"transaction.state.log.min.isr":              {int64(min(2, max(1, replicas-1))), noLimit, torn},
		"transaction.state.log.replication.factor":   {int64(min(3, replicas)), noLimit, torn},
		"transaction.max.timeout.ms":                 {slices.Max(txn).Milliseconds(), noLimit, rejected},
		"transaction.partition.verification.enable":  {1, 1, "a late record can leave a transaction open forever"},
		"unclean.leader.election.enable":             {0, 0, lost},
	}
	metadata, metadataErr := cl.BrokerMetadata(ctx)
	brokers, err := cl.DescribeBrokerConfigs(ctx, metadata.Brokers.NodeIDs()...)
	names := map[string][]string{} // of brokers, by line
	for _, b := range brokers {
		err = cmp.Or(err, b.Err)
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
	if err := cmp.Or(metadataErr, err); err != nil {
		lines = append(lines, fmt.Sprintf("brokers are not checked (DESCRIBE_CONFIGS of the cluster): %v", err))
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
	good := strconv.FormatInt(best, 10)
	if value == "true" || value == "false" {
		good = strconv.FormatBool(best == 1)
	}
	return fmt.Sprintf("%s is %s, better %s: %s", c.Key, value, good, g.cost)
}
