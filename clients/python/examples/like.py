"""Likes a new post over HTTP and Kafka, reads its count, and follows its stream. The defaults suit `kudos dev`."""

import os
import random

from kudos_client import Client, KafkaWriter

client = Client(os.environ.get("PRODUCER_URL", "http://127.0.0.1:8080"),
                os.environ.get("READER_URL", "http://127.0.0.1:8081"))
brokers = os.environ.get("BROKERS", "127.0.0.1:9092")
positions = []
writer = KafkaWriter({"bootstrap.servers": brokers}, on_delivery=lambda event, position: positions.append(position))
post = random.randrange(1, 1 << 64)

print(f"user 7 likes post {post} over HTTP: position {client.like(post, 7, region='DE')}")
writer.like(post, 8, region="US-CA")
writer.flush()
print(f"user 8 likes it over Kafka: position {positions[0]}")
print(f"likes: {client.count(post, min_offset=positions[0]).likes}")

changes = client.stream([post])
print(f"stream: {next(changes).likes}")
client.like(post, 9)
print(f"stream, after user 9 likes it: {next(changes).likes}")
changes.close()
