"""The testee of this client: see clients/conformance/README.md."""

import json
import sys
from functools import lru_cache
from itertools import islice

from kudos_client import (Client, KudosProblem, LikeEvent, Position, database_of, key_of, parse_user_buckets,
                          partition_of)

client = lru_cache(lambda url: Client(url, url))


def answer(op: str, request: dict) -> dict:
    if op == "database":
        return {"database": database_of(request["partition"], request["databases"])}
    if op not in ("event", "react", "partition", "count", "stream"):
        return {"unsupported": True}
    post, user = int(request["post_id"]), int(request.get("user_id", 0))
    if op == "partition":
        key = key_of(post, user, parse_user_buckets(request.get("user_buckets") or []))
        return {"key": key.decode(), "partition": partition_of(key, request["partitions"])}
    if op == "count":
        at = request.get("min_offset")
        counts = client(request["base_url"]).count(post, at and Position(int(at["partition"]), int(at["offset"])))
        return {"likes": str(counts.likes), "dislikes": str(counts.dislikes)}
    if op == "stream":
        changes = islice(client(request["base_url"]).stream([post]), request["events"])
        return {"likes": [str(counts.likes) for counts in changes]}
    event = LikeEvent(post, user, request["action"], int(request.get("time_ms") or 0), request.get("region"))
    if op == "event":
        return {"key": key_of(post, user).decode(), "value": event.encode().hex()}
    position = client(request["base_url"]).send(event)
    return {"partition": position.partition, "offset": str(position.offset)}


for line in sys.stdin:
    request = json.loads(line)
    try:
        response = answer(request["op"], request)
    except KudosProblem as e:
        response = {"problem": e.type}
    except Exception as e:
        response = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps({"id": request["id"], **response}), flush=True)
