package kudos.client;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import kudos.client.LikeEvent.Action;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.errors.SerializationException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ClientTest {
  private static final long MAX_ID = -1; // 2^64-1
  private static final int PARTITIONS = 8;

  private static String hex(LikeEvent event) {
    return HexFormat.of().formatHex(new LikeEventSerializer().serialize("likes", event));
  }

  @Test
  void valueMatchesTheContract() {
    assertEquals("080710091801" + "20fbd095ffbc31" + "2a0555532d4341",
        hex(new LikeEvent(7, 9, Action.LIKE, 1_700_000_000_123L, "US-CA")));
    assertEquals("08" + "ff".repeat(9) + "01" + "10" + "80".repeat(9) + "01" + "1803" + "20" + "ff".repeat(8) + "7f",
        hex(new LikeEvent(MAX_ID, 1L << 63, Action.DISLIKE, Long.MAX_VALUE, null)));
  }

  @Test
  void timeIsSetOnce() throws Exception {
    long before = System.currentTimeMillis();
    var event = new LikeEvent(1, 2, Action.UNLIKE);
    assertTrue(before <= event.timeMs() && event.timeMs() <= System.currentTimeMillis());
    String first = hex(event);
    Thread.sleep(5);
    assertEquals(first, hex(event));
  }

  @Test
  void invalidEventsAreRejected() {
    assertThrows(IllegalArgumentException.class, () -> new LikeEvent(0, 1, Action.LIKE));
    assertThrows(IllegalArgumentException.class, () -> new LikeEvent(1, 0, Action.LIKE));
    assertThrows(IllegalArgumentException.class, () -> new LikeEvent(1, 1, Action.LIKE, -1, ""));
    assertThrows(NullPointerException.class, () -> new LikeEvent(1, 1, null));
    assertThrows(SerializationException.class, () -> hex(new LikeEvent(1, 1, Action.LIKE, 1, "D".repeat(5000))));
  }

  @Test
  void idsAreUnsignedInText() {
    assertEquals("LIKE of post 18446744073709551615 by user 7 at 1 ms in DE",
        new LikeEvent(MAX_ID, 7, Action.LIKE, 1, "DE").toString());
  }

  @Test
  void partitionsAreThoseOfKudos() {
    assertEquals(List.of(15, 8, 15, 1, 6, 6, 3, 11),
        LongStream.rangeClosed(1, 8).mapToObj(post -> Partitions.partitionOf(post, 16)).toList());
    assertEquals(List.of(0, 1, 2, 0, 1), IntStream.range(0, 5).mapToObj(p -> Partitions.databaseOf(p, 3)).toList());
  }

  @Test
  void usersOfAPostWithBucketsHaveKeysOfTheirOwn() {
    var buckets = new UserBuckets("42:16, 18446744073709551615:1024");
    assertEquals("43", new String(buckets.key(43, 7), US_ASCII));
    assertEquals("42/3", new String(buckets.key(42, 7), US_ASCII));
    Set<String> keys = new TreeSet<>();
    LongStream.range(1, 200).forEach(user -> keys.add(new String(buckets.key(42, user), US_ASCII)));
    assertEquals(16, keys.size());
    assertTrue(new String(buckets.key(MAX_ID, MAX_ID), US_ASCII).matches("18446744073709551615/\\d+"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"42", "42:", "x:2", "0:2", "42:1", "42:1025", "18446744073709551616:2", "42:2,42:3", "-1:2"})
  void invalidUserBucketsAreRejected(String list) {
    assertThrows(IllegalArgumentException.class, () -> new UserBuckets(list));
  }

  private static Cluster cluster() {
    var node = new Node(0, "localhost", 9092);
    var partitions = IntStream.range(0, PARTITIONS)
        .mapToObj(p -> new PartitionInfo("likes", p, node, new Node[] {node}, new Node[] {node})).toList();
    return new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
  }

  @Test
  void producerPutsEventsIntoTheirPartition() throws Exception {
    Map<String, Object> configs = Map.of(UserBuckets.CONFIG, "42:16");
    var keys = new LikeKeySerializer();
    keys.configure(configs, true);
    var partitioner = new LikePartitioner();
    partitioner.configure(configs);
    Set<Integer> used = new TreeSet<>();
    try (var producer = new MockProducer<>(cluster(), true, partitioner, keys, new LikeEventSerializer())) {
      for (long user = 1; user <= 50; user++) {
        assertEquals(2, producer.send(new LikeEvent(43, user, Action.LIKE).record("likes")).get().partition());
        var event = new LikeEvent(42, user, Action.LIKE);
        int partition = producer.send(event.record("likes")).get().partition();
        assertEquals(Partitions.partitionOf(new UserBuckets("42:16").key(42, user), PARTITIONS), partition);
        assertEquals(partition, producer.send(new ProducerRecord<>("likes", event)).get().partition(), "without a key");
        used.add(partition);
      }
    }
    assertTrue(used.size() > 1);
  }

  @Test
  void otherValuesGoByTheirKey() {
    var partitioner = new LikePartitioner();
    byte[] key = "42".getBytes(US_ASCII);
    assertEquals(4, partitioner.partition("likes", "42", key, "{}", null, cluster()));
    assertThrows(IllegalArgumentException.class,
        () -> partitioner.partition("likes", null, null, "{}", null, cluster()));
  }

  @Test
  void testeeAnswers() {
    assertEquals("{\"id\":1,\"key\":\"42/3\",\"partition\":6}", Testee.answer(
        "{\"id\":1,\"op\":\"partition\",\"post_id\":\"42\",\"user_id\":\"7\","
            + "\"partitions\":8,\"user_buckets\":[\"42:16\"]}"));
    assertEquals("{\"id\":2,\"database\":1}",
        Testee.answer("{\"id\":2,\"op\":\"database\",\"partition\":4,\"databases\":3}"));
    assertEquals("{\"id\":3,\"key\":\"7\",\"value\":\"08071009180120012a013c\"}", Testee.answer(
        "{\"id\":3,\"op\":\"event\","
        + "\"post_id\":\"7\",\"user_id\":\"9\",\"action\":\"LIKE\",\"time_ms\":\"1\",\"region\":\"\\u003c\"}"));
    assertEquals("{\"id\":4,\"unsupported\":true}",
        Testee.answer("{\"id\":4,\"op\":\"count\",\"min_offset\":{\"partition\":3,\"offset\":\"8\"}}"));
    assertTrue(Testee.answer("{\"id\":5,\"op\":\"event\",\"action\":\"LIKE\"}").contains("postId: 0 is not an id"));
  }
}
