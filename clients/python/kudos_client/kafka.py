"""Publishes likes to Kafka without the HTTP producer."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from .event import LikeEvent, Position, Writer, key_of, parse_user_buckets

# librdkafka's default partitioner is CRC32 (consistent_random), which puts a post into another partition than the
# default of Kafka, which kudos uses. kudos would forward each event: it counts once, but is processed twice.
_FIXED = {"partitioner": "murmur2_random", "enable.idempotence": True}


class KafkaWriteError(Exception):
    """Some events were not acknowledged. Sending the same events again is safe: they keep their time."""

    def __init__(self, failed: list[tuple[LikeEvent, KafkaError]], waiting: int) -> None:
        self.failed, self.waiting = failed, waiting
        cause = f"the first: {failed[0][1].str()}" if failed else "call flush again"
        super().__init__(f"write likes: {len(failed)} events failed, {waiting} are not acknowledged yet; {cause}")


class KafkaWriter(Writer[LikeEvent]):
    """Publishes events. It buffers them: flush waits for Kafka and raises what went wrong.

    config has librdkafka's settings, user_buckets is the setting topics.user_buckets of kudos. on_delivery gets each
    acknowledged event with its position; send and flush call it.
    """

    def __init__(self, config: Mapping[str, Any], topic: str = "likes", user_buckets: Iterable[str] = (),
                 on_delivery: Callable[[LikeEvent, Position], None] | None = None) -> None:
        if given := sorted(_FIXED.keys() & config.keys()):
            raise ValueError(f"config: KafkaWriter sets {', '.join(given)}: remove it")
        # The topic likes accepts record batches up to 64 KiB; librdkafka's default is 1 MB.
        self._producer = Producer({"batch.size": 60_000, **config, **_FIXED})
        self._topic, self._buckets, self._on_delivery = topic, parse_user_buckets(user_buckets), on_delivery
        self._failed: list[tuple[LikeEvent, KafkaError]] = []

    def send(self, event: LikeEvent) -> LikeEvent:
        """Enqueues an event and returns it. It waits while librdkafka's queue is full."""
        key, value = key_of(event.post, event.user, self._buckets), event.encode()
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=partial(self._delivered, event))
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
        return event

    def flush(self, timeout: float = 30) -> None:
        """Waits until all events are acknowledged. Raises KafkaWriteError if some failed since the last flush."""
        waiting = self._producer.flush(timeout)
        failed, self._failed = self._failed, []
        if failed or waiting:
            raise KafkaWriteError(failed, waiting)

    def _delivered(self, event: LikeEvent, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append((event, error))
        elif self._on_delivery is not None:
            self._on_delivery(event, Position(message.partition(), message.offset()))
