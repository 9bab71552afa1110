package kudos.client;

import static java.nio.charset.StandardCharsets.US_ASCII;

import org.apache.kafka.common.utils.Utils;

/** Where the events and rows of a post are. */
public final class Partitions {
  private Partitions() {}

  /** The partition of a record key, as Kafka's default partitioner chooses it. */
  public static int partitionOf(byte[] key, int partitions) {
    return Utils.toPositive(Utils.murmur2(key)) % partitions;
  }

  /** The partition of a post without user buckets. */
  public static int partitionOf(long post, int partitions) {
    return partitionOf(Long.toUnsignedString(post).getBytes(US_ASCII), partitions);
  }

  /** Which of the databases, from 0 in the order of mysql.shards, has the partition's rows. */
  public static int databaseOf(int partition, int databases) {
    return partition % databases;
  }
}
