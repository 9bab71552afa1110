import http.server
import json
import threading
import time
import unittest
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from kudos_client import Client, Counts, KudosProblem, KudosTimeout, Position, Reaction

BIG = (1 << 64) - 1
HANG_UP = None  # in a script: read the request, then close the connection


def likes(post, count, offset):
    return {"post_id": str(post), "likes": count, "dislikes": 1, "as_of": {"partition": 3, "offset": offset}}


def event(count, offset):
    return f"id: 5f0c1d2e.3:{offset}\nevent: likes\ndata: {json.dumps(likes(42, count, offset))}\n\n"


def problem(status, kind, **headers):
    body = {"type": "urn:kudos:problem:" + kind, "title": "t", "status": status, "detail": "why"}
    return status, body, {name.replace("_", "-"): str(value) for name, value in headers.items()}


class Server(http.server.ThreadingHTTPServer):
    """Answers each request with the next item of script, the last one again and again."""

    def __init__(self, *script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests = list(script), []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        self.server.requests.append((f"{self.command} {url.path}", parse_qs(url.query), dict(self.headers), body))
        script = self.server.script
        reply = script.pop(0) if len(script) > 1 else script[0]
        if reply is HANG_UP or isinstance(reply, str):
            self.close_connection = True
        if isinstance(reply, str):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(reply.encode())
        elif reply is not HANG_UP:
            status, content, headers = reply
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do

    def log_message(self, *_):
        pass


ACCEPTED = (202, {"partition": 3, "offset": 1017}, {})


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.waits = []
        patched = mock.patch("kudos_client.client.sleep", self.waits.append)
        patched.start()
        self.addCleanup(patched.stop)

    def run_against(self, *script, **options):
        server = Server(*script)
        self.addCleanup(server.__exit__)
        client = Client(server.url, server.url + "/", **options)
        self.addCleanup(client.close)
        return server, client

    def test_actions_are_sent_and_return_positions(self):
        server, client = self.run_against(ACCEPTED)
        self.assertEqual(client.like(BIG, BIG - 1, time_ms=5, region="US-CA"), Position(3, 1017))
        client.dislike(42, 7)
        client.unlike(42, 7, time_ms=6)
        (like, query, _, _), (dislike, now, _, _), (unlike, _, _, _) = server.requests
        self.assertEqual((like, query), (f"PUT /v1/posts/{BIG}/likes/{BIG - 1}", {"time_ms": ["5"], "region": ["US-CA"]}))
        self.assertEqual((dislike, unlike), ("PUT /v1/posts/42/dislikes/7", "DELETE /v1/posts/42/likes/7"))
        self.assertLess(abs(int(now["time_ms"][0]) - time.time() * 1000), 10_000)

    def test_unanswered_request_is_repeated_with_its_time(self):
        server, client = self.run_against(HANG_UP, HANG_UP, ACCEPTED)
        self.assertEqual(client.like(42, 7), Position(3, 1017))
        self.assertEqual(len(server.requests), 3)
        self.assertEqual(len({query["time_ms"][0] for _, query, _, _ in server.requests}), 1)
        self.assertEqual(len(self.waits), 2)

    def test_retry_after_is_kept(self):
        server, client = self.run_against(problem(429, "rate-limited", Retry_After=2),
                                          problem(503, "not-acknowledged", Retry_After=1), problem(503, "not-running"),
                                          ACCEPTED)
        self.assertEqual(client.like(42, 7).offset, 1017)
        self.assertEqual(self.waits[:2], [2, 1])
        self.assertTrue(0 < self.waits[2] < 1)
        self.assertEqual(len({query["time_ms"][0] for _, query, _, _ in server.requests}), 1)

    def test_other_problems_are_not_retried(self):
        for status in 400, 401, 403, 404, 500:
            server, client = self.run_against(problem(status, "invalid-request", Retry_After=1))
            with self.assertRaisesRegex(KudosProblem, f"PUT /v1/posts/42/likes/7: {status} invalid-request: why") as e:
                client.like(42, 7)
            self.assertEqual((e.exception.type, e.exception.status, len(server.requests)), ("invalid-request", status, 1))

    def test_error_of_a_proxy_is_a_problem(self):
        for body in b"<html>Bad gateway", b"[1]", b'"text"':
            _, client = self.run_against((502, body, {}))
            with self.assertRaisesRegex(KudosProblem, "502 : "):
                client.like(42, 7)

    def test_deadline_bounds_retries(self):
        server, client = self.run_against(problem(429, "rate-limited", Retry_After=3600))
        with self.assertRaisesRegex(KudosProblem, "429 rate-limited"):
            client.like(42, 7)
        self.assertEqual((len(server.requests), self.waits), (1, []))
        _, client = self.run_against(HANG_UP, timeout=0.01)
        with self.assertRaises(KudosTimeout):
            client.like(42, 7)
        with self.assertRaises(KudosTimeout):
            next(client.stream([42]))

    def test_invalid_arguments_are_not_sent(self):
        server, client = self.run_against(ACCEPTED)
        for call in (lambda: client.like(0, 1), lambda: client.like(1, BIG + 1), lambda: client.count(0),
                     lambda: client.counts([1, 0]), lambda: client.reaction(1, 0), lambda: next(client.stream([0]))):
            self.assertRaises(ValueError, call)
        self.assertEqual(server.requests, [])

    def test_token_is_sent(self):
        tokens = iter(["a", "b"])
        server, client = self.run_against(ACCEPTED, token=lambda: next(tokens))
        client.like(42, 7)
        client.like(42, 7)
        self.assertEqual([headers["Authorization"] for _, _, headers, _ in server.requests], ["Bearer a", "Bearer b"])

    def test_count_covers_min_offset(self):
        server, client = self.run_against(problem(503, "not-covered", Retry_After=1), (200, likes(BIG, 1 << 60, 1018), {}))
        self.assertEqual(client.count(BIG, min_offset=Position(3, 1017)), Counts(BIG, 1 << 60, 1, Position(3, 1018)))
        self.assertEqual(server.requests[0][:2], (f"GET /v1/posts/{BIG}/likes", {"min_offset": ["3:1017"]}))
        client.count(BIG, min_offset=Position(3, -1))
        self.assertEqual(server.requests[2][1], {})

    def test_counts_and_reaction(self):
        server, client = self.run_against(
            (200, {"posts": [{"post_id": str(BIG), "likes": 3, "dislikes": 0}], "as_of": []}, {}),
            (200, {"post_id": "42", "user_id": "7", "reaction": "NONE", "as_of": {"partition": 3, "offset": 5}}, {}))
        self.assertEqual(client.counts([BIG], min_offset=[Position(3, 4)]), [Counts(BIG, 3, 0)])
        self.assertEqual(json.loads(server.requests[0][3]),
                         {"post_ids": [str(BIG)], "min_offset": [{"partition": 3, "offset": 4}]})
        self.assertEqual(client.reaction(42, 7), Reaction("NONE", None, None, Position(3, 5)))

    def test_stream_resumes_after_the_last_whole_event(self):
        server, client = self.run_against(
            "retry: 1500\n\n: heartbeat\n\n" + event(1, 10) + event(2, 11) + event(3, 12).removesuffix("\n"),
            problem(503, "not-running", Retry_After=1), HANG_UP, event(3, 12), event(4, 13))
        changes = client.stream([42, BIG])
        self.assertEqual([next(changes).likes for _ in range(4)], [1, 2, 3, 4])
        changes.close()
        self.assertEqual(server.requests[0][:2], ("GET /v1/stream", {"post_ids": [f"42,{BIG}"]}))
        self.assertEqual([headers.get("Last-Event-ID") for _, _, headers, _ in server.requests],
                         [None] + 3 * ["5f0c1d2e.3:11"] + ["5f0c1d2e.3:12"])
        self.assertEqual(self.waits, [1.5, 1, 1.5, 1.5])

    def test_stream_raises_problems(self):
        _, client = self.run_against(problem(400, "invalid-request"))
        with self.assertRaisesRegex(KudosProblem, "GET /v1/stream: 400 invalid-request"):
            next(client.stream([42]))
