#!/usr/bin/env python3
"""What HTTP costs: `strata serve` beside `strata run`, a cached prompt's first token, and a coding agent's turns. README.md says more."""

import argparse
import csv
import importlib.util
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
AGENT = ROOT / "engine/cli/tests/data/agent.json"

# What is known of machines, quiet and bootstraps is written once.
spec = importlib.util.spec_from_file_location("peer", HERE.parent / "cpu-peer/run.py")
peer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peer)
say, Failed, Refused = peer.say, peer.Failed, peer.Refused

# A passage of what nano was trained with: it goes on without an end.
PROMPT = "And the angel of the Lord"
SENTENCE = "The hen and the fox went up the hill to look at the sea, and the sea was as still as a stone. "
COLUMNS = ["measure", "number", "what", "value", "others"]
# Of one and the same engine, one thread, one client.
SETTINGS = ["--threads", "1", "--spec", "0"]
TARGET, TARGET_FIRST = 0.97, 20.0
MEASURES = ["decode", "first", "agent"]


def measures(text):
    found = text.split(",")
    if unknown := [name for name in found if name not in MEASURES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not measured; there are {', '.join(MEASURES)}")
    return found


def arguments(argv):
    p = peer.Parser(prog="server-overhead", description=__doc__)
    p.add_argument("--strata", default=ROOT / "target/release/strata", type=Path, metavar="PATH", help="the binary [target/release/strata]")
    p.add_argument("--model", type=Path, metavar="FILE", help="a GGUF file [nano]")
    p.add_argument("--only", default=MEASURES, type=measures, metavar="LIST", help=f"what to measure, of {', '.join(MEASURES)}, with commas [all]")
    p.add_argument("--rounds", default=12, type=peer.number(1), metavar="N", help="pairs of answers [12]")
    p.add_argument("--tokens", default=1000, type=peer.number(2), metavar="N", help="tokens of an answer [1000]")
    p.add_argument("--repeats", default=30, type=peer.number(1), metavar="N", help="times that the cached prompt is asked [30]")
    p.add_argument("--out", default=ROOT / "results/server-001-overhead", type=Path, metavar="DIR", help="a folder without rows.csv [results/server-001-overhead]")
    p.add_argument("--patience", default=60, type=peer.number(0), metavar="S", help="seconds to wait, before each measurement, for others to leave the machine alone [60]")
    args = p.parse_args(argv)
    if not args.strata.is_file():
        raise Refused(f"there is no strata binary {args.strata}; `just build` makes target/release/strata")
    if args.model and not args.model.is_file():
        raise Refused(f"there is no model {args.model}")
    # Both sides get the same words; nano is what both take when none is named.
    args.named = ["--model", str(args.model.resolve())] if args.model else []
    args.strata, args.out, args.llama_lib = args.strata.resolve(), args.out.resolve(), None
    if (args.out / "rows.csv").exists():
        raise Refused(f"{args.out} already holds rows.csv, which is not written over; move it or pass another --out")
    args.out.mkdir(parents=True, exist_ok=True)
    return args


# --- a server and a client ---


class Server:
    """`strata serve` on a port of its own, in an empty folder, where no strata.toml is found."""

    def __init__(self, args, *flags):
        self.folder = tempfile.TemporaryDirectory()
        command = [str(args.strata), "serve", "--port", "0", *args.named, *SETTINGS, *flags]
        self.process = subprocess.Popen(command, cwd=self.folder.name, env=peer.environment(args), stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        found = re.search(r"http://([^:\s]+):(\d+)", self.process.stdout.readline())
        if not found:
            raise Failed("strata serve does not say where it is")
        self.address = (found[1], int(found[2]))
        for _ in range(600):
            if self.request("GET", "/ready").status == 200:
                return
            time.sleep(0.05)
        raise Failed("strata serve does not get ready")

    def request(self, method, path, body=None):
        return Reply(self.address, method, path, body)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.folder.cleanup()


class Reply:
    """An answer with the times, in seconds since it was asked for, at which its parts came."""

    def __init__(self, address, method, path, body):
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: {address[0]}:{address[1]}\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
        with socket.create_connection(address, timeout=600) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            start = time.perf_counter()
            connection.sendall(head.encode() + data)
            self.pieces = []
            while piece := connection.recv(1 << 16):
                self.pieces.append((time.perf_counter() - start, piece))
        whole = b"".join(piece for _, piece in self.pieces)
        if b"\r\n\r\n" not in whole:
            raise Failed(f"{path} was answered with {len(whole)} bytes that are no HTTP")
        self.head, _, self.body = whole.partition(b"\r\n\r\n")
        self.status = int(self.head.split(b" ", 2)[1])

    @property
    def first_byte(self):
        return self.pieces[0][0]

    def events(self):
        """Each event's data with the time at which it was whole."""
        if self.status != 200:
            raise Failed(f"status {self.status}: {self.body[:300].decode('utf-8', 'replace')}")
        waiting, found = b"", []
        for at, piece in self.pieces:
            waiting += piece
            # Sizes of chunks stand between events, on lines of their own.
            *lines, waiting = waiting.split(b"\n")
            for line in lines:
                if line.startswith(b"data: ") and line != b"data: [DONE]":
                    found.append((at, json.loads(line[6:])))
        return found

    def json(self):
        if self.status != 200:
            raise Failed(f"status {self.status}: {self.body[:300].decode('utf-8', 'replace')}")
        return json.loads(self.body)


class Busy(peer.Busy):
    """What others use of the processors while a server answers, which is ours too."""

    def __init__(self, server):
        self.stat = Path(f"/proc/{server.process.pid}/stat")
        super().__init__()

    def now(self):
        found = super().now()
        try:
            fields = self.stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # User and system time.
        return found and (found[0], found[1], found[2] + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


# --- what is measured ---


def by_program(args):
    command = [str(args.strata), "run", "--raw", "--json", "--quiet", *args.named, *SETTINGS, "--max-tokens", str(args.tokens), PROMPT]
    found = peer.child("strata run", command, args)
    return found["text"], found["timings"]["output_tokens"], {"run_seconds": found["timings"]["output_seconds"]}, found["others"]


def by_http(args, server):
    busy = Busy(server)
    body = {"prompt": PROMPT, "max_tokens": args.tokens, "temperature": 0, "stream": True}
    events = server.request("POST", "/v1/completions", body).events()
    others = busy.others()
    pieces = [(at, event["choices"][0]["text"]) for at, event in events if event.get("choices") and event["choices"][0].get("text")]
    timings = next(event["timings"] for _, event in reversed(events) if "timings" in event)
    text = "".join(piece for _, piece in pieces)
    # The first token comes with the prompt, so one less lies between the first piece and the last.
    times = {"http_seconds": timings["predicted_ms"] / 1e3, "client_seconds": pieces[-1][0] - pieces[0][0]}
    return text, timings["predicted_n"], times, others


def decode(args, server, add):
    sides = {"run": lambda: by_program(args), "http": lambda: by_http(args, server)}
    pairs = []
    for number in range(1, args.rounds + 1):
        # ABBA.
        order = list(sides) if number % 2 else list(reversed(sides))
        found = {}
        for side in order:
            peer.wait_for_quiet(args)
            found[side] = sides[side]()
        (text, tokens, run, busy), (other, same, http, busy_too) = found["run"], found["http"]
        if (text, tokens) != (other, same):
            raise Failed(f"the two answers differ: {tokens} tokens and {same}")
        times = {**run, **http}
        for what, value in times.items():
            add("decode", number, what, value, max((b for b in (busy, busy_too) if b is not None), default=None))
        times["tokens"] = tokens
        times["disturbed"] = any(b is not None and b > peer.DISTURBED for b in (busy, busy_too))
        pairs.append(times)
        say(f"round {number} of {args.rounds}: {tokens} tokens, {run['run_seconds']:.3f} s by run, {http['http_seconds']:.3f} s "
            f"by serve, {http['client_seconds']:.3f} s at the client{', disturbed' if times['disturbed'] else ''}")
    return pairs


def said(event):
    """Whether an event has text, spoken or thought."""
    delta = event["choices"][0]["delta"] if event["choices"] else {}
    return delta.get("content") or delta.get("reasoning_content")


def first_token(args, server, add):
    messages = [{"role": "user", "content": SENTENCE * 40 + "How was the sea?"}]
    body = {"messages": messages, "max_tokens": 4, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    found = []
    for number in range(args.repeats + 1):
        peer.wait_for_quiet(args) if number < 2 else None
        busy = Busy(server)
        reply = server.request("POST", "/v1/chat/completions", body)
        events = reply.events()
        token = next((at for at, event in events if said(event)), None)
        if token is None:
            raise Failed("the answer to the cached prompt has no text")
        usage = events[-1][1]["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        row = {"first_byte_ms": reply.first_byte * 1e3, "first_token_ms": token * 1e3, "prompt": usage["prompt_tokens"], "cached": cached}
        # The first time nothing is known.
        measure = "cached prompt" if number else "new prompt"
        for what, value in row.items():
            add(measure, number, what, value, busy.others())
        found.append(row)
    return found


def agent(args, add):
    """Each turn of the conversation, as the client asks it."""
    talk = json.loads(AGENT.read_text(encoding="utf-8"))
    server, turns = Server(args, "--ctx", "16384"), []
    try:
        peer.wait_for_quiet(args)
        for at, message in enumerate(talk["messages"]):
            if message["role"] != "user":
                continue
            system = f"x-anthropic-billing-header: cc_version=2.1.{at};\n" + "\n\n".join(talk["system"])
            body = {"max_tokens": 4, "temperature": 0, "stream": True, "system": system, "tools": talk["tools"],
                    "messages": talk["messages"][: at + 1]}
            busy = Busy(server)
            events = server.request("POST", "/v1/messages", body).events()
            usage = next(event["usage"] for _, event in events if event["type"] == "message_delta")
            cached = usage["cache_read_input_tokens"]
            token = next((at for at, event in events if event["type"] == "content_block_delta"), events[-1][0])
            turn = {"prompt": usage["input_tokens"] + cached, "cached": cached, "first_token_ms": token * 1e3}
            for what, value in turn.items():
                add("agent", at, what, value, busy.others())
            turns.append(turn)
    finally:
        server.end()
    return turns


# --- what comes out ---


def share(sorted_values, share):
    return sorted_values[round((len(sorted_values) - 1) * share)]


def summary(meta, pairs, cached, turns):
    text = [f"# {meta['name']}: what HTTP costs", ""]
    m = meta["machine"]
    text += [f"Machine: {m['logical_cpus']} logical CPUs of {m['cpu']}{' in a virtual machine' if m['hypervisor'] else ''}, {m['kernel']}. "
             f"{meta['strata']['version']} (checkout at {meta['strata']['commit']}). Model: {meta['model']}, `{' '.join(SETTINGS)}`. "
             f"Date: {meta['date'][:10]}.", ""]
    if pairs:
        text += [f"`strata serve` beside `strata run`: {pairs[0]['tokens']} tokens behind a short prompt, {len(pairs)} pairs in turns; "
                 "both wrote the same text. A ratio is the time of `run`, by the engine's clock, over the other's.", "",
                 "| what | tokens/s of run | tokens/s | ratio | 95 % interval | target | met? |", "|---|---|---|---|---|---|---|"]
        # An engine's time is of all tokens but the first, and so is the client's.
        n = pairs[0]["tokens"] - 1
        base = n / statistics.median(p["run_seconds"] for p in pairs)
        for what, name in (("http_seconds", "serve, by the engine's clock"), ("client_seconds", "serve, by the client's clock")):
            ratios = [p["run_seconds"] / p[what] for p in pairs]
            ends = peer.interval(ratios)
            shown = f"[{ends[0]:.3f}, {ends[1]:.3f}]" if ends else "-"
            met = "undecided"
            if len(ratios) >= 6 and ends:
                met = "yes" if ends[0] >= TARGET else "no" if ends[1] < TARGET else "undecided"
            if sum(p["disturbed"] for p in pairs) > len(pairs) / 4:
                met = "disturbed"
            rate = n / statistics.median(p[what] for p in pairs)
            text.append(f"| {name} | {base:.1f} | {rate:.1f} | {statistics.median(ratios):.3f} | {shown} | {TARGET} | {met} |")
        text += ["", f"In {sum(p['disturbed'] for p in pairs)} of {len(pairs)} pairs others used more than {peer.DISTURBED:.0%} of the machine.", ""]
    if len(cached) > 1:
        new, again = cached[0], cached[1:]
        first = sorted(row["first_byte_ms"] for row in again)
        token = sorted(row["first_token_ms"] for row in again)
        met = "yes" if share(first, 0.95) <= TARGET_FIRST else "no"
        text += [f"A prompt of {new['prompt']} tokens: {new['first_token_ms']:.0f} ms until the first token when it is new. Asked again "
                 f"{len(again)} times, {again[-1]['cached']} of its tokens needing no reading: first byte p50 {share(first, 0.5):.2f} ms, p95 "
                 f"{share(first, 0.95):.2f} ms (target: p95 at most {TARGET_FIRST:.0f} ms: {met}); first token, for which the model has to run, "
                 f"p50 {share(token, 0.5):.2f} ms, p95 {share(token, 0.95):.2f} ms.", ""]
    if turns:
        text += ["A coding agent's conversation, turn by turn, with a first line of the system message that is another one every time:", "",
                 "| turn | prompt, tokens | reused | read | first token, ms |", "|---|---|---|---|---|"]
        for number, t in enumerate(turns, 1):
            text.append(f"| {number} | {t['prompt']} | {t['cached']} | {t['prompt'] - t['cached']} | {t['first_token_ms']:.1f} |")
        text.append("")
    text += ["Intervals are percentile bootstraps of the median ratio (10,000 resamples, fixed seed). Every sample is in `rows.csv`.", ""]
    return "\n".join(text)


def run(argv):
    args = arguments(argv)
    version = subprocess.run([str(args.strata), "--version"], capture_output=True, text=True)
    meta = {
        "name": args.out.name, "machine": peer.machine(), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "complete": False,
        "strata": {"version": version.stdout.strip(), "commit": peer.git("rev-parse", "--short=12", "HEAD"),
                   "changed_since": bool(peer.git("status", "--porcelain", "--untracked-files=no", "--", "engine", "Cargo.toml", "Cargo.lock"))},
        "model": args.model.name if args.model else "nano", "settings": SETTINGS, "rounds": args.rounds, "tokens": args.tokens, "repeats": args.repeats, "others_at_most": peer.DISTURBED,
        "order": "interleaved, ABBA; one server, a process for each `run`", "seed_of_bootstrap": peer.SEED,
        "load_average": {"before": peer.load(), "after": None},
    }
    pairs, cached, turns, status = [], [], [], 1
    signal.signal(signal.SIGTERM, peer.interrupted)
    with open(args.out / "rows.csv", "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)

        def add(measure, number, what, value, others):
            writer.writerow([measure, number, what, f"{value:.6f}" if isinstance(value, float) else value, others])
            out.flush()

        server = None
        try:
            server = Server(args)
            if "first" in args.only:
                cached = first_token(args, server, add)
            if "decode" in args.only:
                pairs = decode(args, server, add)
            server.end()
            server = None
            if "agent" in args.only:
                turns = agent(args, add)
            meta["complete"], status = True, 0
        except Failed as e:
            say(f"server-overhead: {e}")
        except KeyboardInterrupt:
            say("server-overhead: interrupted")
            status = 130
        finally:
            if server:
                server.end()
    meta["load_average"]["after"] = peer.load()
    (args.out / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    (args.out / "summary.md").write_text(summary(meta, pairs, cached, turns), encoding="utf-8")
    entry = args.out / "entry.toml"
    if status == 0 and args.out.parent == ROOT / "results" and not entry.exists():
        entry.write_text('what = "What HTTP costs: serve beside run, a cached prompt, a coding agent"\nverdict = "see summary"\n', encoding="utf-8")
    say(f"rows.csv, meta.json and summary.md lie in {args.out}")
    return status


def main():
    try:
        return run(sys.argv[1:])
    except Refused as e:
        say(f"server-overhead: {e}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
