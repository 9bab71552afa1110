package kudos.bench.streams;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.Cache;
import org.rocksdb.DataBlockIndexType;
import org.rocksdb.Filter;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;

/**
 * RocksDB for the two stores of each task, on top of what Streams sets: universal compaction, 16 MiB memtables, no WAL, no
 * compression.
 */
public final class RocksDbSettings implements RocksDBConfigSetter {
    /** One for all stores of the process, as the documentation of Streams has it: 50 MB each would be unbounded. */
    private static final Cache BLOCK_CACHE = new LRUCache(128L << 20);

    private Filter filter;

    @Override
    public void setConfig(String store, Options options, Map<String, Object> settings) {
        BlockBasedTableConfig table = options.tableFormatConfig() instanceof BlockBasedTableConfig t ? t : new BlockBasedTableConfig();
        table.setBlockCache(BLOCK_CACHE);
        filter = new BloomFilter(10);
        table.setFilterPolicy(filter);
        // Look-ups are of whole keys only.
        table.setDataBlockIndexType(DataBlockIndexType.kDataBlockBinaryAndHash);
        options.setTableFormatConfig(table);
        // Streams leaves the filters of the last level out, for stores where keys are mostly found. Most pairs are new.
        options.setOptimizeFiltersForHits(false);
        options.setMemtableWholeKeyFiltering(true);
        options.setMemtablePrefixBloomSizeRatio(0.05);
        // A task has one thread.
        options.setAllowConcurrentMemtableWrite(false);
        options.setEnableWriteThreadAdaptiveYield(false);
    }

    @Override
    public void close(String store, Options options) {
        filter.close();
    }
}
