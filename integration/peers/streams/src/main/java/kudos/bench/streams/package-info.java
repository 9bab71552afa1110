/**
 * The Kafka Streams peer: what a team that knows Kafka Streams would build to count likes.
 *
 * <p>The input is the topic {@code likes}. One {@link kudos.bench.streams.LatestAction processor} keeps the latest action
 * of each (post, user) and the count of each post in two RocksDB stores with changelogs, exactly once
 * ({@code exactly_once_v2}). A {@link kudos.bench.streams.Sink} reads the committed counts from the changelog of the
 * count store and writes them to the table {@code like_count}. The output is that table and, on stdout, the
 * {@link kudos.bench.streams.Report lines} that the harness reads.
 *
 * <p>README.md describes how it is tuned, and the effect of each setting.
 */
package kudos.bench.streams;
