"""Client of kudos: likes over HTTP or Kafka, exact counts, live streams."""

from .client import Client, Counts, KudosProblem, KudosTimeout, Reaction
from .event import LikeEvent, Position, database_of, key_of, parse_user_buckets, partition_of
from .kafka import KafkaWriteError, KafkaWriter

__all__ = ["Client", "Counts", "KafkaWriteError", "KafkaWriter", "KudosProblem", "KudosTimeout", "LikeEvent",
           "Position", "Reaction", "database_of", "key_of", "parse_user_buckets", "partition_of"]
