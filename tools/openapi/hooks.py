"""What Schemathesis does not know about the APIs. schemathesis.toml loads it."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson", "application/ndjson", "application/jsonl")
def lines(ctx, value):
    """One item per line."""
    items = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(item) for item in items).encode()


# Why a request is rejected although the document allows it, by field and reason: OpenAPI 3.0 cannot express these.
BEYOND = {
    ("min_offset", "out_of_range"): "the event must exist",
    ("page_token", "undecodable"): "a token has a checksum",
    ("from", "out_of_range"): "from and to are limited together, to 1,000 intervals",
    ("to", "out_of_range"): "a time is between 1970 and 2200",
    ("post_ids", "empty"): "a stream has either post_ids or trending",
    ("window", "unknown_field"): "only with trending",
    ("viewer", "unknown_field"): "only with post_ids",
    ("last_event_id", "undecodable"): "an id names a partition once",
    ("specversion", "unknown_value"): "a CloudEvent in binary mode has it as a header, as the next three",
    ("id", "empty"): "binary mode",
    ("source", "empty"): "binary mode",
    ("type", "empty"): "binary mode",
    ("time", "negative_time"): "a time is after 1970",
    ("time", "undecodable"): "no leap seconds",
}


def mode_is(case, positive, component=None):
    if case.meta is None:
        return False
    info = case.meta.components.get(component) if component else case.meta.generation
    return info is not None and info.mode.is_positive == positive


@schemathesis.check
def valid_request_is_rejected_for_a_known_reason(ctx, response, case):
    if response.status_code == 400 and mode_is(case, True):
        unknown = [e for e in response.json()["errors"] if (e.get("field"), e["reason"]) not in BEYOND]
        assert not unknown, f"the document allows this request: {unknown}"


@schemathesis.check
def accepted_batch_reports_its_invalid_lines(ctx, response, case):
    batch = case.operation.label == "POST /v1/likes:batch"
    if batch and response.status_code == 202 and mode_is(case, False, "body"):
        assert response.json()["rejected"] > 0, "the document does not allow this batch"
