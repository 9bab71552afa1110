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
 * RocksDB settings for the two stores of each task, in addition to those of Streams: universal compaction, 16 MiB
 * memtables, no WAL, no compression.
 */
public final class RocksDbSettings implements RocksDBConfigSetter {
    /** Shared by all stores of the process, as the Streams documentation advises: 50 MB for each would be unbounded. */
    private static final Cache BLOCK_CACHE = new LRUCache(128L << 20);

    private Filter filter;

    @Override
    public void setConfig(String store, Options options, Map<String, Object> settings) {
        BlockBasedTableConfig table = options.tableFormatConfig() instanceof BlockBasedTableConfig t ? t : new BlockBasedTableConfig();
        table.setBlockCache(BLOCK_CACHE);
        filter = new BloomFilter(10);
        table.setFilterPolicy(filter);
        // All lookups are by whole keys.
        table.setDataBlockIndexType(DataBlockIndexType.kDataBlockBinaryAndHash);
        options.setTableFormatConfig(table);
        // Streams omits the filters of the last level, for stores in which most keys are found. Here most pairs are new.
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
