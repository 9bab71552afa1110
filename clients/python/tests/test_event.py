import time
import unittest

from kudos_client import LikeEvent, database_of, key_of, parse_user_buckets, partition_of

MAX_ID = (1 << 64) - 1


class EventTest(unittest.TestCase):
    def test_encode_matches_the_contract(self):
        event = LikeEvent(7, 9, "LIKE", 1_700_000_000_123, "US-CA")
        self.assertEqual(event.encode().hex(), "080710091801" + "20fbd095ffbc31" + "2a0555532d4341")
        event = LikeEvent(MAX_ID, 1 << 63, "DISLIKE", (1 << 63) - 1)
        self.assertEqual(event.encode().hex(), "08" + "ff" * 9 + "01" + "10" + "80" * 9 + "01" + "1803" + "20" + "ff" * 8 + "7f")

    def test_time_is_set_once(self):
        before = time.time_ns() // 1_000_000
        event = LikeEvent(1, 2, "UNLIKE")
        self.assertTrue(before <= event.time_ms <= time.time_ns() // 1_000_000)
        first = event.encode()
        time.sleep(0.005)
        self.assertEqual(event.encode(), first)

    def test_invalid_events_are_rejected(self):
        for arguments in [(0, 1, "LIKE"), (1, 0, "LIKE"), (MAX_ID + 1, 1, "LIKE"), (1, -1, "LIKE"), (1, 1, "like"),
                          (1, 1, "LIKE", -1), (1, 1, "LIKE", 1 << 63)]:
            with self.subTest(arguments), self.assertRaises(ValueError):
                LikeEvent(*arguments)
        with self.assertRaises(ValueError):
            LikeEvent(1, 1, "LIKE", region="D" * 5000).encode()

    def test_a_malformed_region_is_sent(self):
        self.assertTrue(LikeEvent(1, 1, "LIKE", 1, "Z\ud800").encode().endswith(b"\x2a\x02Z?"))


class PartitionTest(unittest.TestCase):
    def test_partition_is_that_of_kafka(self):
        self.assertEqual([partition_of(key_of(post, 1), 16) for post in range(1, 9)], [15, 8, 15, 1, 6, 6, 3, 11])
        # Results of org.apache.kafka.common.utils.Utils.murmur2, from Kafka's own tests.
        for key, murmur2 in {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
                             "a-little-bit-longer-string": -1486304829, "abc": 479470107,
                             "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971}.items():
            self.assertEqual(partition_of(key.encode(), 1 << 31), murmur2 & 0x7FFFFFFF, key)

    def test_user_buckets(self):
        buckets = parse_user_buckets(["42:16", f" {MAX_ID}:1024"])
        self.assertEqual(buckets, {42: 16, MAX_ID: 1024})
        self.assertEqual(key_of(42, 7, buckets), b"42/%d" % partition_of(b"7", 16))
        self.assertEqual(key_of(43, 7, buckets), b"43")
        self.assertEqual({key_of(42, user, buckets) for user in range(1, 200)}, {b"42/%d" % b for b in range(16)})

    def test_invalid_user_buckets_are_rejected(self):
        for entries in ["42"], ["42:"], ["x:2"], ["0:2"], ["42:1"], ["42:1025"], [f"{MAX_ID + 1}:2"], ["42:2", "42:3"]:
            with self.subTest(entries), self.assertRaises(ValueError):
                parse_user_buckets(entries)

    def test_databases_take_turns(self):
        self.assertEqual([database_of(partition, 3) for partition in range(5)], [0, 1, 2, 0, 1])
