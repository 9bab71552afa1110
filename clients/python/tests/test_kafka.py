import unittest

from confluent_kafka import KafkaException

from kudos_client import KafkaWriteError, KafkaWriter, Position, key_of, parse_user_buckets, partition_of

MOCK = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "linger.ms": 0, "log_level": 3}  # librdkafka's own broker
PARTITIONS = 4  # of its topics


class KafkaWriterTest(unittest.TestCase):
    def test_events_are_in_the_partition_of_their_key(self):
        delivered = []
        writer = KafkaWriter(MOCK, user_buckets=["42:16"], on_delivery=lambda event, at: delivered.append((event, at)))
        events = [writer.like(post, user) for post in (1, 2, 42, (1 << 64) - 1) for user in range(1, 9)]
        events += [writer.unlike(42, 7, time_ms=5), writer.dislike(42, 7, time_ms=6, region="DE")]
        writer.flush()
        self.assertCountEqual([event for event, _ in delivered], events)
        buckets = parse_user_buckets(["42:16"])
        for event, at in delivered:
            self.assertIsInstance(at, Position)
            self.assertGreaterEqual(at.offset, 0)
            self.assertEqual(at.partition, partition_of(key_of(event.post, event.user, buckets), PARTITIONS))
        self.assertGreater(len({at.partition for event, at in delivered if event.post == 42}), 1)
        self.assertGreater(len({at.partition for event, at in delivered if event.post != 42}), 1)

    def test_flush_raises_what_was_not_delivered(self):
        writer = KafkaWriter({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100, "log_level": 0})
        event = writer.like(42, 7)
        with self.assertRaisesRegex(KafkaWriteError, "0 events failed, 1 are not acknowledged yet; call flush again"):
            writer.flush(0.001)
        with self.assertRaisesRegex(KafkaWriteError, "1 events failed, 0 are not acknowledged yet; the first: ") as e:
            writer.flush()
        self.assertEqual([failed for failed, _ in e.exception.failed], [event])
        writer.flush()

    def test_a_full_queue_is_waited_for(self):
        writer = KafkaWriter({**MOCK, "queue.buffering.max.messages": 2})
        for user in range(1, 21):
            writer.like(42, user)
        writer.flush()

    def test_other_partitioners_are_rejected(self):
        with self.assertRaisesRegex(ValueError, "partitioner"):
            KafkaWriter({**MOCK, "partitioner": "consistent_random"})
        with self.assertRaises(KafkaException):
            KafkaWriter({**MOCK, "acks": 1})
