"""Writes reactions by a schema registry, with Confluent's serializers: write.py avro|json BROKERS REGISTRY-URL TOPIC N

Reaction i is of post 1+i%50 by user 1+7*i%41, "love", or "none" for each third, at i milliseconds after BASE_MS.
"""

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

BASE_MS = 1_790_000_000_000
AVRO = {
    "type": "record", "name": "Reaction",
    "fields": [
        {"name": "post", "type": "long"}, {"name": "member", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["love", "none"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
JSON = {
    "title": "Reaction", "type": "object", "required": ["post", "member", "kind"],
    "properties": {"post": {"type": "integer"}, "member": {"type": "string"},
                   "kind": {"enum": ["love", "none"]}, "at": {"type": "integer"}},
}

kind, brokers, url, topic, count = sys.argv[1:]
registry = SchemaRegistryClient({"url": url})
if kind == "avro":
    serialize = AvroSerializer(registry, json.dumps(AVRO))
else:
    serialize = JSONSerializer(json.dumps(JSON), registry)
producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
failed = []
for i in range(int(count)):
    reaction = {"post": 1 + i % 50, "member": str(1 + 7 * i % 41), "kind": "love" if i % 3 else "none", "at": BASE_MS + i}
    producer.produce(topic, key=f"{reaction['post']}/{reaction['member']}",
                     value=serialize(reaction, SerializationContext(topic, MessageField.VALUE)),
                     on_delivery=lambda error, _: error and failed.append(error))
    producer.poll(0)
if producer.flush(60) or failed:
    sys.exit(f"not written: {failed[:1]}")
