package sizing

// Unit is a measured figure.
type Unit struct {
	What  string
	Value float64
	Of    string // its unit
	// Source is the page of docs/ that has it, and Quote the text there.
	Source, Quote string
}

// Units are the figures behind plans, all measured on a machine with 2 cores (2.5 GHz) that also ran Kafka and MariaDB.
type Units struct {
	OwnCPU    Unit // of a processor, per event
	OthersCPU Unit // of Kafka and MariaDB, per event
	HotRate   Unit // of one partition

	BytesAPair, FilterBytes, Memory, Recovery, RowsAnEvent                           Unit
	EventBytes, TableBytes, UpdateBytes, RowBytes, Reads, Pages, ViewBytes, Accepted Unit

	CountBytes                                             Unit // of like-counts
	ReactionBytes, ReactionCPU, ReactionRead, ReactionsGot Unit // of a reader that keeps reactions
}

// Measured are the figures of docs/benchmarks.md and docs/performance.md.
func Measured() Units {
	return Units{
		OwnCPU: Unit{"processor, CPU time per million events (1,000,000 posts, Zipf)", 1.82, "s", "benchmarks.md",
			"1.82 (1.79–1.90)"},
		OthersCPU: Unit{"Kafka and MariaDB, CPU time per million events", 3.49 - 1.82,
			"s", "benchmarks.md", "3.49 (3.46–3.72)"},
		HotRate: Unit{"one partition with one post", 994_352, "events/s", "benchmarks.md",
			"994,352 (951,655–1,051,801)"},
		BytesAPair: Unit{"state on disk, per reaction", 23.8, "bytes", "benchmarks.md", "23.8 (23.8–23.8)"},
		FilterBytes: Unit{"filter of known pairs in a processor's memory, per reaction", 2.5, "bytes", "performance.md",
			"25 and not 100 MB at 10,000,000 pairs"},
		Memory: Unit{"resident memory of a processor with 10,008,347 reactions", 1_148, "MiB", "benchmarks.md",
			"1,148 (1,064–1,177)"},
		Recovery: Unit{"recovery of a processor from Kafka", 2_475_150, "reactions/s", "benchmarks.md",
			"2,475,150 (2,393,681–2,660,604)"},
		RowsAnEvent: Unit{"rows changed in MySQL per event (1,000,000 posts, Zipf)", 0.27, "rows", "benchmarks.md",
			"0.27 (0.27–0.28)"},
		EventBytes: Unit{"an event in likes", 25.5, "bytes", "performance.md", "| `likes` | 25.5 |"},
		TableBytes: Unit{"a record of the state table's topic", 16.8, "bytes", "performance.md",
			"| `latest-like-action-table` | 16.8 |"},
		UpdateBytes: Unit{"a record of like-updates", 17.0, "bytes", "performance.md", "| `like-updates` | 17.0 |"},
		RowBytes: Unit{"a row of like_count", 105.7, "bytes", "performance.md",
			"| `like_count` (InnoDB, a row) | 105.7 |"},
		Reads: Unit{"a reader, counts of one post", 70_100, "reads/s", "performance.md", "| reader | 70,100 |"},
		Pages: Unit{"a reader, pages of 50 posts", 989_000, "counts/s", "performance.md", "989,000 posts/s"},
		ViewBytes: Unit{"counts of a post in the memory of a reader", 12.2, "bytes", "performance.md",
			"| snowflake | 11.3 | 12.2 |"},
		CountBytes: Unit{"a record of like-counts", 11.2, "bytes", "performance.md", "| `like-counts` | 11.2 |"},
		ReactionBytes: Unit{"a reader's disk, per reaction", 15.0, "bytes", "performance.md",
			"| bytes on disk, a reaction | 15.0 |"},
		ReactionCPU: Unit{"a reader, CPU time per million events", 6.1, "s", "performance.md",
			"| CPU, s a million, live | 6.10 (1.32) |"},
		ReactionRead: Unit{"recovery of a reader from Kafka", 10_000_000 / 7.7, "reactions/s", "performance.md",
			"| ready after, s | 7.7 (1.3) |"},
		ReactionsGot: Unit{"four readers that share them, 50 reactions of a user at a time", 190_670, "reactions/s",
			"performance.md", "deliver 190,670"},
		Accepted: Unit{"a producer, single likes", 37_467, "likes/s", "benchmarks.md", "37,467 (31,977–41,442)"},
	}
}

// cores of the machine of the measurements.
const cores = 2
