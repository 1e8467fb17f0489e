"""A small server that speaks the part of the API which the pages use, for the browser test.

It needs nothing but Python's standard library. What it answers depends on the last message: see `script`.
`python3 mock.py --port 8123` serves the pages for looking at them by hand; `--key SECRET` wants a key.
"""

import argparse
import json
import math
import mimetypes
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

WEB = Path(__file__).resolve().parents[2] / "web"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

MARKDOWN = """## Two ways to sum

Use **a fold** or *a loop*; both are `O(n)`. See [the book](https://doc.rust-lang.org/book/ "The book").

```rust
// Adds what it is given.
fn sum(values: &[u64]) -> u64 {
    values.iter().fold(0, |a, b| a + b) // "strings" and 42
}
```

| way | time | note |
|:--|--:|:-:|
| fold | 12 ns | `a \\| b` |
| loop | 13 ns | **same** |

1. First
   - nested, with $a_1 * b_1$
   - [ ] to do
   - [x] done
2. Second

> Quoted, <script>alert(1)</script> and <img src=x onerror=alert(1)>.

---
The end.
"""


def branches(**ms):
    """A round as the server tells it."""
    return {"window": 2, "committed": 1, "branches": [{"name": name, "ms": value} for name, value in ms.items()]}


class State:
    """What all requests share."""

    def __init__(self):
        self.lock = threading.Lock()
        self.started = time.time()
        self.requests = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.cancelled = 0
        self.running = 0
        self.speeds = []
        self.bodies = []  # every request's body, for tests
        self.fail_next = None
        self.load_share = None

    def status(self):
        now = time.time() - self.started
        rounds = [
            branches(**{
                "cpu_experts": 14 + 4 * math.sin(i / 5) + (i * 7919 % 13) / 5,
                "draft": 1.4 + (i * 31 % 7) / 10,
                "commit": 0.5,
                "wait_cpu": 2 + 2 * math.cos(i / 9),
                "gpu_dense": 6.5,
                "gpu_hits": 3 + (i * 17 % 5) / 4,
                "pcie_copy": 2.5 + math.sin(i / 3),
                "other": 0.8 + (60 if i % 50 == 49 else 0),
            })
            for i in range(int(now), int(now) + 120)
        ]
        hits = [0.55 + 0.4 * math.sin(layer / 6) ** 2 - (layer * 37 % 11) / 60 for layer in range(48)]
        return {
            "version": "0.1.0-mock",
            "uptime": now,
            "state": "ready" if self.load_share is None else "loading",
            **({} if self.load_share is None else {"share": self.load_share}),
            "model": "nano-mock",
            "info": {"id": "nano-mock", "created": 0, "context": 4096, "vocab": 4096, "has_template": True, "can_think": True, "marks": []},
            "tiers": {"ram": 70_000_000, "vram": 0, "file": 0},
            "queue": {"waiting": max(0, self.running - 1), "running": min(1, self.running), "limit": 32},
            "counters": {
                "requests": self.requests,
                "prompt_tokens": self.prompt_tokens,
                "cached_tokens": self.cached_tokens,
                "output_tokens": self.output_tokens,
                "cancelled": self.cancelled,
                "refused": {"busy": 2, "too_long": 1},
            },
            "speeds": self.speeds,
            "drafts": {"proposed": 812, "accepted": 603, "rounds": 402},
            "conversations": {"kept": 3, "bytes": 9_000_000, "started": 4, "resumed": 11, "branched": 2, "evicted": 1},
            "degradations": [{"name": "no_gpu", "count": 1, "text": "No GPU was found; everything runs on the CPU."}],
            "rounds": rounds,
            "expert_cache": [{"layer": layer, "hits": round(h * 9000), "lookups": 0 if layer == 47 else 9000} for layer, h in enumerate(hits)],
            "expert_cache_on_paper": True,
        }


def script(body):
    """The answer to a request: pieces ("think" | "text" | "call" | "wait", value), and why it ends."""
    last = body["messages"][-1]
    text = last["content"] if isinstance(last["content"], str) else ""
    if last["role"] == "tool":
        return [("text", f"The tool said: {text}")], "stop"
    if "tool" in text and body.get("tools"):
        name = body["tools"][0]["function"]["name"]
        return [("text", "Let me look."), ("call", (0, name, '{"city": "Par')), ("call", (0, None, 'is", "days": [1, 2]}'))], "tool_calls"
    if "long" in text:
        return [piece for i in range(400) for piece in (("text", f"Word {i} of many. " + ("\n\n" if i % 10 == 9 else "")), ("wait", 0.03))], "stop"
    if "markdown" in text:
        return [("text", MARKDOWN[i : i + 7]) for i in range(0, len(MARKDOWN), 7)], "stop"
    if "short" in text:
        return [("text", "Cut")], "length"
    pieces = []
    if body.get("chat_template_kwargs", {}).get("enable_thinking") is not False and "think" in text:
        pieces += [piece for word in "Let me think about this for a moment.".split() for piece in (("think", word + " "), ("wait", 0.04))]
    count = sum(1 for message in body["messages"] if message["role"] == "user")
    pieces += [("text", word + " ") for word in f"Answer {count} to: {text}".split(" ")]
    return pieces, "stop"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    @property
    def state(self):
        return self.server.state

    def begin(self, status, kind, length=None, extra=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", CSP)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        for name, value in extra:
            self.send_header(name, value)
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def json(self, status, value, extra=()):
        data = json.dumps(value).encode()
        self.begin(status, "application/json", len(data), extra)
        self.wfile.write(data)

    def error(self, status, message, kind, extra=()):
        self.json(status, {"error": {"message": message, "type": kind, "code": None, "param": None}}, extra)

    def allowed(self):
        key = self.server.key
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.error(401, "The key is missing or wrong.", "authentication_error")
        return False

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/v1/"):
            if not self.allowed():
                return
            if path == "/v1/models":
                self.json(200, {"object": "list", "data": [{"id": "nano-mock", "object": "model", "created": 0, "owned_by": "strata", "context_length": 4096}]})
            elif path == "/v1/status":
                self.json(200, self.state.status())
            elif path == "/v1/events" and not self.server.without_events:
                self.events()
            else:
                self.error(404, f"There is no {path}.", "not_found_error")
            return
        if path == "/web/" or path.startswith("/web/"):
            path = path.removeprefix("/web")
        file = (WEB / (path.lstrip("/") or "index.html")).resolve()
        if not file.is_relative_to(WEB) or not file.is_file():
            self.error(404, f"There is no {path}.", "not_found_error")
            return
        data = file.read_bytes()
        self.begin(200, (mimetypes.guess_type(file.name)[0] or "application/octet-stream"), len(data))
        self.wfile.write(data)

    def parse_request(self):
        # A connection that is kept open must not outlive the server.
        if self.server.ending:
            self.close_connection = True
            return False
        return super().parse_request()

    def events(self):
        self.begin(200, "text/event-stream")
        try:
            while not self.server.ending:
                self.event(self.state.status(), "status")
                time.sleep(0.25)
        except OSError:
            pass

    def event(self, value, name=None):
        head = f"event: {name}\n" if name else ""
        self.wfile.write(f"{head}data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.allowed():
            return
        if self.path != "/v1/chat/completions":
            self.error(404, f"There is no {self.path}.", "not_found_error")
            return
        body = json.loads(raw)
        with self.state.lock:
            self.state.bodies.append(body)
            self.state.requests += 1
            failure, self.state.fail_next = self.state.fail_next, None
        if failure:
            self.error(*failure)
            return
        with self.state.lock:
            self.state.running += 1
        try:
            self.answer(body)
        except OSError:
            with self.state.lock:
                self.state.cancelled += 1
        finally:
            with self.state.lock:
                self.state.running -= 1

    def chunk(self, delta=None, finish=None, **extra):
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        self.event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "nano-mock", "choices": choices, **extra})

    def answer(self, body):
        self.begin(200, "text/event-stream")
        prompt = sum(len(str(message.get("content", ""))) for message in body["messages"]) // 3 + 12
        cached = prompt // 2 if len(body["messages"]) > 2 else 0
        slow = "patience" in str(body["messages"][-1]["content"])
        if slow:
            time.sleep(1.5)
        self.chunk({"role": "assistant", "content": ""})
        self.wfile.write(b": still here\n\n")
        for read in (prompt // 2, prompt):
            self.wfile.write(f": prompt {read}/{prompt}\n\n".encode())
            time.sleep(1 if slow else 0.15)
        started = time.time()
        thoughts = written = 0
        pieces, finish = script(body)
        for kind, value in pieces:
            if kind == "wait":
                time.sleep(value)
                continue
            if kind == "call":
                index, name, arguments = value
                call = {"index": index, "function": {"arguments": arguments}}
                if name:
                    call |= {"id": "call_1", "type": "function"}
                    call["function"]["name"] = name
                self.chunk({"tool_calls": [call]})
            else:
                self.chunk({"reasoning_content" if kind == "think" else "content": value})
            thoughts += kind == "think"
            written += 1
            with self.state.lock:
                self.state.output_tokens += 1
            time.sleep(0.004)
        seconds = max(time.time() - started, 0.001)
        with self.state.lock:
            self.state.prompt_tokens += prompt
            self.state.cached_tokens += cached
            self.state.speeds.append({"prompt_rate": prompt / 0.3, "output_rate": written / seconds})
        self.chunk({}, finish)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": thoughts},
        }
        timings = {"queue_ms": 0.1, "cache_n": cached, "prompt_n": prompt - cached, "prompt_ms": 300, "predicted_n": written, "predicted_ms": seconds * 1000}
        self.chunk(usage=usage, timings=timings)
        self.event("[DONE]")


class Mock(ThreadingHTTPServer):
    """The server; `state` is what tests look at and change."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port=0, key=""):
        super().__init__(("127.0.0.1", port), Handler)
        self.state = State()
        self.key = key
        self.ending = False
        self.without_events = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def stop(self):
        self.ending = True
        self.shutdown()
        self.server_close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--key", default="")
    arguments = parser.parse_args()
    server = Mock(arguments.port, arguments.key)
    print(f"{server.url} serves {WEB}")
    server.serve_forever()
