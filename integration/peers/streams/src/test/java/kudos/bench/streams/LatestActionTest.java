package kudos.bench.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.google.protobuf.CodedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests the topology on the test driver, with the settings and RocksDB stores of the real process. */
class LatestActionTest {
    private static final int LIKE = 1;
    private static final int UNLIKE = 2;
    private static final int DISLIKE = 3;
    private static final long UNSIGNED_POST = 0xFFFF_FFFF_FFFF_FFF0L;

    @TempDir
    Path dir;
    private TopologyTestDriver driver;
    private TestInputTopic<byte[], byte[]> likes;

    @BeforeEach
    void start() {
        var arguments = Arguments.parse("--brokers", "none:1", "--mysql-dsn", "tcp(none:1)/none", "--state-dir", dir.toString());
        driver = new TopologyTestDriver(LikesTopology.build(), Settings.streams(arguments));
        likes = driver.createInputTopic(LikesTopology.LIKES, new ByteArraySerializer(), new ByteArraySerializer());
    }

    @AfterEach
    void stop() {
        driver.close();
    }

    @Test
    void duplicatesCountOnce() {
        send(7, 1, LIKE);
        send(7, 1, LIKE);
        send(7, 2, LIKE);
        send(7, 1, LIKE);
        assertEquals(2, count(7));
    }

    @Test
    void theLastActionOfAPairDecides() {
        send(7, 1, LIKE);
        send(7, 1, UNLIKE);
        assertEquals(0, count(7));
        send(7, 1, UNLIKE);
        assertEquals(0, count(7));
        send(7, 1, LIKE);
        send(7, 2, UNLIKE); // without a like before
        send(7, 3, LIKE);
        send(7, 3, DISLIKE);
        assertEquals(1, count(7));
    }

    @Test
    void postsAndUsersAreApart() {
        send(1, 2, LIKE);
        send(2, 1, LIKE);
        send(UNSIGNED_POST, -1, LIKE);
        send(UNSIGNED_POST, -2, LIKE);
        assertEquals(1, count(1));
        assertEquals(1, count(2));
        assertEquals(2, count(UNSIGNED_POST));
    }

    @Test
    void theKeyNamesThePostWhereTheValueDoesNot() {
        likes.pipeInput(Long.toUnsignedString(UNSIGNED_POST).getBytes(StandardCharsets.US_ASCII), event(0, 1, LIKE));
        assertEquals(1, count(UNSIGNED_POST));
    }

    @Test
    void whatIsNoEventIsPassedOver() {
        send(7, 1, LIKE);
        likes.pipeInput("7".getBytes(StandardCharsets.US_ASCII), new byte[] {(byte) 0xff});
        likes.pipeInput("7".getBytes(StandardCharsets.US_ASCII), event(7, 0, LIKE));
        likes.pipeInput("7".getBytes(StandardCharsets.US_ASCII), event(7, 2, 0));
        send(7, 3, LIKE);
        assertEquals(2, count(7));
    }

    @Test
    void countsAgreeWithASetOfWhoLikesWhat() {
        Random random = new Random(1);
        Map<Long, Set<Long>> expected = new HashMap<>();
        for (int i = 0; i < 5_000; i++) {
            long post = 1 + random.nextInt(5);
            long user = 1 + random.nextInt(100);
            boolean like = random.nextInt(3) > 0;
            send(post, user, like ? LIKE : UNLIKE);
            Set<Long> users = expected.computeIfAbsent(post, p -> new HashSet<>());
            if (like) {
                users.add(user);
            } else {
                users.remove(user);
            }
        }
        expected.forEach((post, users) -> assertEquals(users.size(), count(post), "post " + post));
    }

    @Test
    void theChangelogOfTheCountsTellsCountsAndHowFarTheyGo() {
        send(7, 1, LIKE);
        send(8, 1, LIKE);
        send(7, 2, LIKE);
        send(7, 2, LIKE); // changes nothing, but is still progress
        var changelog = driver.createOutputTopic(Settings.countsTopic(), new LongDeserializer(), CountAt.serde().deserializer());
        Map<Long, CountAt> newest = new HashMap<>();
        for (KeyValue<Long, CountAt> record : changelog.readKeyValuesToList()) {
            newest.put(record.key, record.value);
        }
        assertEquals(Map.of(7L, new CountAt(2, 3), 8L, new CountAt(1, 2), CountAt.PROGRESS, new CountAt(0, 4)), newest);
    }

    @Test
    void aPostThatNobodyTouchedHasNoCount() {
        assertNull(driver.<Long, CountAt>getKeyValueStore(LatestAction.COUNTS).get(7L));
    }

    private void send(long post, long user, int action) {
        likes.pipeInput(Long.toUnsignedString(post).getBytes(StandardCharsets.US_ASCII), event(post, user, action));
    }

    private long count(long post) {
        return driver.<Long, CountAt>getKeyValueStore(LatestAction.COUNTS).get(post).count();
    }

    /** Encodes like Go's schema.AppendEvent: fields in order, zeros omitted. */
    private static byte[] event(long post, long user, int action) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        CodedOutputStream out = CodedOutputStream.newInstance(bytes);
        try {
            for (long[] field : List.of(new long[] {1, post}, new long[] {2, user}, new long[] {3, action}, new long[] {4, 1_700_000_000_000L})) {
                if (field[1] != 0) {
                    out.writeUInt64((int) field[0], field[1]);
                }
            }
            out.writeByteArray(5, "US".getBytes(StandardCharsets.US_ASCII));
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }
}
