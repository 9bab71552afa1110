package kudos.bench.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.DBOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.RocksDB;

class StateSizeTest {
    private static final int PAIRS = 10_000;

    @Test
    void countsEachPairOnceInAllTasksAndNothingElse(@TempDir Path application) throws Exception {
        for (int task = 0; task < 2; task++) {
            fill(application.resolve("0_" + task).resolve("rocksdb").resolve(LatestAction.PAIRS), task);
        }
        fill(application.resolve("0_0").resolve("rocksdb").resolve(LatestAction.COUNTS), 0);
        Files.createFile(application.resolve("kafka-streams-process-metadata"));

        StateSize size = StateSize.compactAndMeasure(application);

        assertEquals(2 * PAIRS, size.pairs());
        double bytes = (double) size.bytes() / size.pairs();
        assertTrue(bytes > 8 && bytes < 40, "bytes per pair: " + bytes);
    }

    /** Creates two column families, like Streams, and three overlapping files of the same pairs. */
    private static void fill(Path store, int task) throws Exception {
        Files.createDirectories(store);
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        var families = List.of(new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY), new ColumnFamilyDescriptor("offsets".getBytes()));
        try (DBOptions options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
                FlushOptions flush = new FlushOptions().setWaitForFlush(true);
                RocksDB db = RocksDB.open(options, store.toString(), families, handles)) {
            for (int round = 0; round < 3; round++) {
                for (long pair = 0; pair < PAIRS; pair++) {
                    db.put(handles.get(0), ByteBuffer.allocate(16).putLong(task).putLong(pair * 0x9E3779B97F4A7C15L).array(), new byte[] {1});
                }
                db.put(handles.get(1), "position".getBytes(), new byte[8]);
                db.flush(flush, handles);
            }
            handles.forEach(ColumnFamilyHandle::close);
        }
    }
}
