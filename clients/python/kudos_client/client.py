"""The HTTP client of a producer and a reader."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from time import monotonic, sleep
from typing import Any, NamedTuple

import httpx

from .event import LikeEvent, Position, Writer, check_id

# Seconds. A producer waits 10 s for Kafka, a reader 5 s for min_offset; a stream has a heartbeat every 15 s.
_ATTEMPT, _SILENCE, _BACKOFF, _MAX_BACKOFF = 15.0, 60.0, 0.1, 10.0

# The server may or may not have read the request. Other errors of httpx, such as an invalid URL, are final.
_UNANSWERED = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)


class KudosTimeout(Exception):
    """No response within the timeout. Whether a write took effect is unknown; repeating it with its time_ms is safe."""


class KudosProblem(Exception):
    """An error response (RFC 9457). type is without its prefix urn:kudos:problem:."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            body = dict(response.json())
        except (TypeError, ValueError):  # from a proxy, for example
            body = {"detail": response.text[:200]}
        self.status, self.type = response.status_code, str(body.get("type", "")).removeprefix("urn:kudos:problem:")
        self.detail, self.errors = str(body.get("detail", "")), body.get("errors", [])
        seconds = response.headers.get("Retry-After", "")
        self.retry_after = int(seconds) if seconds.isdecimal() else None
        what = f"{response.request.method} {response.request.url.path}"
        super().__init__(f"{what}: {self.status} {self.type}: {self.detail}")


class Counts(NamedTuple):
    """The counts of a post. They reflect all events before as_of; Client.counts does not return as_of."""
    post: int
    likes: int
    dislikes: int
    as_of: Position | None = None


class Reaction(NamedTuple):
    """The reaction of a user to a post: LIKE, DISLIKE or NONE."""
    reaction: str
    since: str | None
    region: str | None
    as_of: Position | None


class _Retry:
    def __init__(self, timeout: float) -> None:
        self.timeout, self.attempt, self.deadline = timeout, 0, monotonic() + timeout

    def limit(self) -> float:
        return min(_ATTEMPT, max(0.001, self.deadline - monotonic()))

    def wait(self, failure: Exception, least: float = 0) -> None:
        """Sleeps until the next attempt, or raises failure if it is final or if that would be after the deadline."""
        delay = max(least, min(_MAX_BACKOFF, _BACKOFF * 2 ** min(self.attempt, 20)) * random.uniform(0.5, 1))
        self.attempt += 1
        if isinstance(failure, KudosProblem):
            if failure.status not in (429, 503):
                raise failure
            delay = failure.retry_after or delay
        if monotonic() + delay > self.deadline:
            raise failure
        sleep(delay)


class Client(Writer[Position]):
    """Sends likes to a producer and reads from a reader. It is thread-safe.

    token, or what it returns, is sent to both as a bearer token. A request that gets no response, 429 or 503 is sent
    again, until timeout seconds have passed. Other error responses raise KudosProblem at once.
    """

    def __init__(self, producer_url: str, reader_url: str, token: str | Callable[[], str] | None = None,
                 timeout: float = 30) -> None:
        self._producer, self._reader = producer_url.rstrip("/"), reader_url.rstrip("/")
        self._token, self._timeout = token, timeout
        self._http = httpx.Client(auth=self._authorize if token else None)

    def close(self) -> None:
        self._http.close()

    def send(self, event: LikeEvent) -> Position:
        """Sends an event and returns its position."""
        kind = "dislikes" if event.action == "DISLIKE" else "likes"
        query = {"time_ms": str(event.time_ms), **({"region": event.region} if event.region else {})}
        body = self._request("DELETE" if event.action == "UNLIKE" else "PUT",
                             f"{self._producer}/v1/posts/{event.post}/{kind}/{event.user}", params=query)
        return Position(body["partition"], body["offset"])

    def count(self, post: int, min_offset: Position | None = None) -> Counts:
        """Returns the counts of a post. min_offset is the position of an event that they must include."""
        path = f"/v1/posts/{check_id('post', post)}/likes"
        return _counts(self._request("GET", self._reader + path, params=_covering(min_offset)))

    def counts(self, posts: Iterable[int], min_offset: Iterable[Position] = ()) -> list[Counts]:
        """Returns the counts of up to 1,000 posts, in this order. It sends a POST: a URL may not have the room."""
        body = {"post_ids": [str(check_id("post", post)) for post in posts],
                "min_offset": [p._asdict() for p in min_offset if p.offset >= 0]}
        return [_counts(c) for c in self._request("POST", f"{self._reader}/v1/likes:get", json=body)["posts"]]

    def reaction(self, post: int, user: int, min_offset: Position | None = None) -> Reaction:
        """Returns the reaction of a user to a post."""
        path = f"/v1/posts/{check_id('post', post)}/likes/{check_id('user', user)}"
        body = self._request("GET", self._reader + path, params=_covering(min_offset))
        return Reaction(body["reaction"], body.get("since"), body.get("region"), _position(body.get("as_of")))

    def stream(self, posts: Iterable[int]) -> Iterator[Counts]:
        """Yields the counts of up to 100 posts, then each change. It reconnects and does not end by itself."""
        query = {"post_ids": ",".join(str(check_id("post", post)) for post in posts)}
        retry, least, last_id = _Retry(self._timeout), 0.0, ""
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
            timeout, connected = httpx.Timeout(retry.limit(), read=_SILENCE), False
            try:
                with self._http.stream("GET", self._reader + "/v1/stream", params=query, headers=headers,
                                       timeout=timeout) as response:
                    connected = response.is_success
                    for kind, value, event_id in _events(response.iter_lines() if connected else ()):
                        if kind == "retry":
                            least = int(value) / 1000
                        else:
                            last_id, retry.attempt = event_id or last_id, 0
                        if kind == "likes":
                            yield _counts(json.loads(value))
                    if not connected:
                        response.read()
                        failure: Exception = KudosProblem(response)
            except _UNANSWERED as e:
                failure = KudosTimeout(f"GET /v1/stream: no response within {self._timeout:g} s: {e}")
            if connected:
                failure = KudosTimeout("GET /v1/stream: the stream ends again and again without an event")
                retry.deadline = monotonic() + self._timeout + least
            retry.wait(failure, least)

    def _request(self, method: str, url: str, **arguments: Any) -> Any:
        retry = _Retry(self._timeout)
        while True:
            try:
                response = self._http.request(method, url, timeout=retry.limit(), **arguments)
                if response.is_success:
                    return response.json()
                failure: Exception = KudosProblem(response)
            except _UNANSWERED as e:
                failure = KudosTimeout(f"{method} {httpx.URL(url).path}: no response within {self._timeout:g} s: {e}")
            retry.wait(failure)

    def _authorize(self, request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {self._token() if callable(self._token) else self._token}"
        return request


def _covering(min_offset: Position | None) -> dict[str, str]:
    return {"min_offset": str(min_offset)} if min_offset is not None and min_offset.offset >= 0 else {}


def _position(body: dict[str, int] | None) -> Position | None:
    return Position(body["partition"], body["offset"]) if body else None


def _counts(body: dict[str, Any]) -> Counts:
    return Counts(int(body["post_id"]), body["likes"], body["dislikes"], _position(body.get("as_of")))


def _events(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Parses Server-Sent Events to (event, data, id). It drops an event that is cut off, with its id."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "retry" and value.isdecimal():
            yield name, value, ""
        elif line:
            fields[name] = f"{fields['data']}\n{value}" if name == "data" and "data" in fields else value
        elif fields:
            if "data" in fields:
                yield fields.get("event", "message"), fields["data"], fields.get("id", "")
            fields = {}
