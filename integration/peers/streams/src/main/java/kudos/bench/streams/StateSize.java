package kudos.bench.streams;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;

/**
 * The size on disk of the compacted pair stores, and their number of pairs. Streams must be closed.
 */
record StateSize(long bytes, long pairs) {
    static StateSize compactAndMeasure(Path application) throws IOException {
        List<Path> stores;
        try (Stream<Path> tasks = Files.list(application)) {
            stores = tasks.map(task -> task.resolve("rocksdb").resolve(LatestAction.PAIRS)).filter(Files::isDirectory).toList();
        }
        return stores.parallelStream().map(StateSize::ofStore).reduce(new StateSize(0, 0), StateSize::plus);
    }

    private StateSize plus(StateSize other) {
        return new StateSize(bytes + other.bytes, pairs + other.pairs);
    }

    private static StateSize ofStore(Path store) {
        try {
            long pairs = compact(store);
            return new StateSize(sizeOf(store), pairs);
        } catch (RocksDBException | IOException e) {
            throw new IllegalStateException("measure state in " + store + ": " + e.getMessage(), e);
        }
    }

    /** Compacts the store to one sorted run, for which RocksDB's estimate is exact, and returns the number of keys. */
    private static long compact(Path store) throws RocksDBException {
        RocksDbSettings settings = new RocksDbSettings();
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        try (Options options = new Options()) {
            settings.setConfig(LatestAction.PAIRS, options, Map.of());
            try (DBOptions dbOptions = new DBOptions(options); ColumnFamilyOptions familyOptions = new ColumnFamilyOptions(options)) {
                List<ColumnFamilyDescriptor> families = RocksDB.listColumnFamilies(options, store.toString()).stream()
                        .map(name -> new ColumnFamilyDescriptor(name, familyOptions)).toList();
                try (RocksDB db = RocksDB.open(dbOptions, store.toString(), families, handles)) {
                    for (ColumnFamilyHandle handle : handles) {
                        db.compactRange(handle);
                    }
                    long pairs = db.getLongProperty(handles.get(0), "rocksdb.estimate-num-keys");
                    handles.forEach(ColumnFamilyHandle::close);
                    return pairs;
                }
            } finally {
                settings.close(LatestAction.PAIRS, options);
            }
        }
    }

    private static long sizeOf(Path directory) throws IOException {
        try (Stream<Path> files = Files.list(directory)) {
            return files.mapToLong(file -> file.toFile().length()).sum();
        }
    }
}
