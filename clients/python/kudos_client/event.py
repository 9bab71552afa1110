"""The contract of the topic likes: values, keys and partitions."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

ACTIONS = {"LIKE": 1, "UNLIKE": 2, "DISLIKE": 3}
MAX_EVENT_BYTES, MAX_BUCKETS = 4 << 10, 1024


class Position(NamedTuple):
    """A position in the topic likes. The offset -1 (rare) means that Kafka has the event but did not report where."""
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


def check_id(name: str, value: int) -> int:
    """Returns value if it is a valid id, and raises ValueError otherwise."""
    if not 0 < value < 1 << 64:
        raise ValueError(f"{name}: {value} is not between 1 and 2^64-1")
    return value


@dataclass(frozen=True)
class LikeEvent:
    """What a user wants for a post. To send an event again, send the same object: it keeps its time."""
    post: int
    user: int
    action: str  # LIKE, UNLIKE (withdraws a like or dislike) or DISLIKE
    time_ms: int = 0  # Unix milliseconds; 0: the current time
    region: str | None = None  # ISO 3166-1 or 3166-2, such as DE or US-CA

    def __post_init__(self) -> None:
        check_id("post", self.post)
        check_id("user", self.user)
        if self.action not in ACTIONS:
            raise ValueError(f"action: {self.action!r} is not one of {', '.join(ACTIONS)}")
        if not 0 <= self.time_ms < 1 << 63:
            raise ValueError(f"time_ms: {self.time_ms} is not between 0 and 2^63-1")
        # Set once, here: a retry with a new time could override what the user did in between.
        object.__setattr__(self, "time_ms", self.time_ms or time.time_ns() // 1_000_000)

    def encode(self) -> bytes:
        """Returns the event as Protobuf, message kudos.v1.LikeEvent."""
        numbers = (self.post, self.user, ACTIONS[self.action], self.time_ms)
        value = b"".join(_varint(field << 3) + _varint(n) for field, n in enumerate(numbers, 1))
        if self.region:
            region = self.region.encode(errors="replace")
            value += _varint(5 << 3 | 2) + _varint(len(region)) + region
        if len(value) > MAX_EVENT_BYTES:
            raise ValueError(f"encode event: {len(value)} bytes, the limit is {MAX_EVENT_BYTES}: shorten the region")
        return value


def _varint(n: int) -> bytes:
    encoded = bytearray()
    while n > 0x7F:
        encoded.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(encoded) + bytes([n])


T = TypeVar("T")


class Writer(Generic[T]):
    """The actions of Client and KafkaWriter. time_ms defaults to the current time; unlike withdraws a dislike, too."""

    def send(self, event: LikeEvent) -> T:
        raise NotImplementedError

    def like(self, post: int, user: int, time_ms: int | None = None, region: str | None = None) -> T:
        return self.send(LikeEvent(post, user, "LIKE", time_ms or 0, region))

    def unlike(self, post: int, user: int, time_ms: int | None = None, region: str | None = None) -> T:
        return self.send(LikeEvent(post, user, "UNLIKE", time_ms or 0, region))

    def dislike(self, post: int, user: int, time_ms: int | None = None, region: str | None = None) -> T:
        return self.send(LikeEvent(post, user, "DISLIKE", time_ms or 0, region))


def parse_user_buckets(entries: Iterable[str]) -> dict[int, int]:
    """Parses the setting topics.user_buckets, such as ["42:16"], to the number of buckets by post."""
    buckets: dict[int, int] = {}
    for entry in entries:
        post, _, count = entry.strip().partition(":")
        if not (post.isdecimal() and count.isdecimal() and 2 <= int(count) <= MAX_BUCKETS) or int(post) in buckets:
            raise ValueError(f"{entry!r} is not <post>:<buckets>, each post once, with 2 to {MAX_BUCKETS} buckets")
        buckets[check_id("post", int(post))] = int(count)
    return buckets


def key_of(post: int, user: int, user_buckets: Mapping[int, int] | None = None) -> bytes:
    """Returns the record key: <post>, or <post>/<bucket> for a post with user buckets."""
    key = b"%d" % check_id("post", post)
    if user_buckets and post in user_buckets:
        key += b"/%d" % partition_of(b"%d" % check_id("user", user), user_buckets[post])
    return key


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a record key, as Kafka's default partitioner does (murmur2)."""
    m, mask, whole = 0x5BD1E995, 0xFFFFFFFF, len(key) & ~3
    h = 0x9747B28C ^ len(key)
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i:i + 4], "little") * m & mask
        h = (h * m ^ (k ^ k >> 24) * m) & mask
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


def database_of(partition: int, databases: int) -> int:
    """Returns which of the databases, from 0 in the order of mysql.shards, has the partition's rows."""
    return partition % databases
