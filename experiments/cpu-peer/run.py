#!/usr/bin/env python3
"""Strata beside llama.cpp on the CPU: how fast both write and read, in turns, on the same files. README.md says more."""

import argparse
import csv
import datetime
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORKER = HERE / "llama_worker.py"
NANO = ROOT / "engine/cli/model/nano-IQ3_S.gguf"
PACKAGE = "llama-cpp-python"

# What strata is to reach, as a multiple of llama.cpp: decode, prefill.
TARGETS = {"nano": (1.5, None), "Q2_0": (2.0, 2.0), "IQ3_S": (1.2, 1.3)}
# The same bootstrap as `strata bench`.
SEED, RESAMPLES, TAIL = 1, 10_000, 0.025
COLUMNS = ["model", "measure", "round", "first", "strata_tokens_per_second", "llama_tokens_per_second", "ratio",
           "strata_others", "llama_others", "load_1m"]
# The share of the machine that others may use before a measurement counts as disturbed. llama.cpp's threads spin while they
# wait for each other: another busy process makes them many times slower, and would flatter strata.
DISTURBED = 0.05
FLAGS = ["avx", "f16c", "fma", "bmi2", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vbmi",
         "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "asimddp", "i8mm", "sve"]


class Refused(Exception):
    """The input is wrong: one sentence."""


class Failed(Exception):
    """A measurement failed: one sentence."""


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- what is asked for ---


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(message)


def number(least):
    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= 1_000_000:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to 1000000")
        return value

    return parse


def numbers(text):
    values = [number(1)(part.strip()) for part in text.split(",")]
    if len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"{text!r} names a length twice")
    return values


def arguments(argv):
    p = Parser(prog="cpu-peer", description=__doc__)
    p.add_argument("models", nargs="+", metavar="MODEL", help="a .gguf file, or nano, the one of this project")
    p.add_argument("--strata", default=ROOT / "target/release/strata", type=Path, metavar="PATH", help="the binary [target/release/strata]")
    p.add_argument("--threads", default=2, type=number(1), metavar="N", help="of both [2]")
    p.add_argument("--rounds", default=7, type=number(1), metavar="N", help="measurements of each engine [7]")
    p.add_argument("--warm-up", default=1, type=number(0), metavar="N", help="repetitions before each that do not count [1]")
    p.add_argument("--decode", default=64, type=number(1), metavar="N", help="tokens to write [64]")
    p.add_argument("--context", default=128, type=number(1), metavar="N", help="tokens before them [128]")
    p.add_argument("--prompts", default=[128, 512], type=numbers, metavar="LIST", help="lengths to read [128,512]")
    p.add_argument("--out", default=ROOT / "results/cpu-001-peer", type=Path, metavar="DIR", help="a folder without rows.csv [results/cpu-001-peer]")
    p.add_argument("--patience", default=60, type=number(0), metavar="S", help="seconds to wait, before each measurement, for others to leave the machine alone [60]")
    p.add_argument("--corpus", default=ROOT / "engine/cli/model/conversations.jsonl", type=Path, metavar="FILE", help="text to read [engine/cli/model/conversations.jsonl]")
    p.add_argument("--llama-lib", type=Path, metavar="DIR", help="llama.cpp's shared libraries, rather than the package's")
    args = p.parse_args(argv)

    args.models = [NANO if m == "nano" else Path(m) for m in args.models]
    for model in args.models:
        if not model.is_file():
            raise Refused(f"there is no model file {model}")
        shard = re.search(r"-(\d{5})-of-\d{5}\.gguf$", model.name)
        if shard and int(shard[1]) != 1:
            raise Refused(f"{model} is not the first of its shards, which llama.cpp needs")
    args.models = [m.resolve().parent / m.name for m in args.models]
    names = [m.name for m in args.models]
    if len(set(names)) != len(names):
        raise Refused("two models have the same file name")
    if not args.strata.is_file() or not os.access(args.strata, os.X_OK):
        raise Refused(f"there is no strata binary {args.strata}; `just build` makes target/release/strata")
    if not args.corpus.is_file():
        raise Refused(f"there is no corpus {args.corpus}")
    if args.llama_lib and not any(args.llama_lib.glob("*llama.*")):
        raise Refused(f"{args.llama_lib} holds no llama library")
    if importlib.util.find_spec("llama_cpp") is None:
        raise Refused(f"this Python has no llama_cpp; `pip install {PACKAGE}` builds it in about half an hour")
    args.strata, args.corpus, args.out = args.strata.resolve(), args.corpus.resolve(), args.out.resolve()
    args.llama_lib = args.llama_lib and args.llama_lib.resolve()
    if (args.out / "rows.csv").exists():
        raise Refused(f"{args.out} already holds rows.csv, which is not written over; move it or pass another --out")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise Refused(f"cannot make the folder {args.out}: {e.strerror}") from e
    return args


# --- whether the machine is ours ---


class Busy:
    """What of the processors others use from now on: neither this process nor its children; stolen time is theirs."""

    def __init__(self):
        self.before = self.now()

    def now(self):
        ours = sum(os.times()[:4])
        try:
            fields = [int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        except (OSError, ValueError, IndexError):
            return None
        tick = os.sysconf("SC_CLK_TCK")
        return sum(fields) / tick, (sum(fields) - fields[3] - fields[4]) / tick, ours

    def others(self):
        """A share of the machine, or None where that is not known."""
        after = self.now()
        if not after or not self.before or after[0] <= self.before[0]:
            return None
        total, busy, ours = (b - a for a, b in zip(self.before, after))
        return round(max(0.0, (busy - ours) / total), 3)


def wait_for_quiet(args):
    """Waits until others leave the machine alone, for a while at most."""
    end, told = time.monotonic() + args.patience, False
    while True:
        busy = Busy()
        time.sleep(0.5)
        others = busy.others()
        if others is None or others <= DISTURBED or time.monotonic() >= end:
            return
        if not told:
            say(f"others use {others:.0%} of the machine: waiting, for {args.patience} s at most")
            told = True


# --- the two engines ---


def environment(args):
    """This one, without what would set either engine differently."""
    ours = ("STRATA_", "LLAMA_", "GGML_", "OMP_", "GOMP_", "KMP_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    if args.llama_lib:
        env["LLAMA_CPP_LIB_PATH"] = str(args.llama_lib)
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(args.llama_lib), env.get("LD_LIBRARY_PATH")]))
    return env


def child(what, command, args):
    """Runs one in an empty folder, where no strata.toml is found, and returns the JSON that it prints."""
    with tempfile.TemporaryDirectory() as empty:
        busy = Busy()
        done = subprocess.run(command, cwd=empty, env=environment(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        others = busy.others()
    if done.returncode < 0:
        raise Failed(f"{what} was ended by {signal.Signals(-done.returncode).name}")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
        raise Failed(f"{what} failed with status {done.returncode}: {lines[-1].strip()}")
    try:
        return {**json.loads(done.stdout), "others": others}
    except ValueError as e:
        raise Failed(f"{what} printed no JSON") from e


class Measure:
    """What is measured, and the passages of the corpus that each round reads. No two rounds read the same."""

    def __init__(self, args, prompt, output):
        self.prompt, self.output, self.warm_up = prompt, output, args.warm_up
        self.name = f"decode {output}" if output else f"prefill {prompt}"
        self.kind = "decode" if output else "prefill"
        self.turns = args.warm_up + 1
        # llama.cpp reads text where strata writes its own; it lies behind the prompts of its round.
        self.behind = -(-output // prompt)
        self.step = self.turns * (1 + self.behind)

    def tokens(self, rounds):
        return rounds * self.step * self.prompt

    def skip(self, number):
        return (number - 1) * self.step

    def passages(self, number):
        """Where prompts begin and the texts that follow them, warm-ups first."""
        first = self.skip(number)
        last = first + self.turns
        # What is counted goes on where its prompt ends.
        order = [last + (turn + 1) * self.behind for turn in range(self.warm_up)] + [last]
        return [((first + turn) * self.prompt, order[turn] * self.prompt) for turn in range(self.turns)]

    def target(self, kind):
        return TARGETS.get(kind, (None, None))[self.kind == "prefill"]


def strata_command(args, model, measure, number):
    command = [str(args.strata), "bench", measure.kind, str(model), "--threads", str(args.threads)]
    # llama.cpp has no drafts for this architecture: both write token by token.
    command += ["--prompt-tokens", str(measure.prompt), "--spec", "0"]
    if measure.output:
        # The first token of an answer comes with the prompt and is not timed.
        command += ["--output-tokens", str(measure.output + 1)]
    command += ["--repetitions", "1", "--warm-up", str(args.warm_up), "--skip", str(measure.skip(number))]
    return command + ["--corpus", str(args.corpus), "--json"]


def strata(args, model, measure, number):
    result = child("strata", strata_command(args, model, measure, number), args)
    return result["results"][0]["samples"][0], result["others"]


def llama_command(args, model, plan):
    plan = {**plan, "model": str(model), "corpus": str(args.corpus)}
    return [sys.executable, str(WORKER), json.dumps(plan)]


def llama_plan(args, measure, number):
    *warm_up, passage = measure.passages(number)
    return {"task": measure.kind, "threads": args.threads, "prompt": measure.prompt, "output": measure.output,
            "warm_up": warm_up, "passage": passage}


def llama(args, model, measure, number):
    result = child("llama.cpp", llama_command(args, model, llama_plan(args, measure, number)), args)
    return result["rate"], result["others"]


# --- what it was measured on ---


def first_match(path, pattern):
    try:
        found = re.search(pattern, Path(path).read_text(), re.M)
    except OSError:
        return None
    return found and found[1].strip()


def load():
    return [round(v, 2) for v in os.getloadavg()] if hasattr(os, "getloadavg") else None


def machine():
    info = "/proc/cpuinfo"
    flags = set((first_match(info, r"^(?:flags|Features)\s*:(.*)$") or "").split())
    memory = first_match("/proc/meminfo", r"^MemTotal:\s*(\d+) kB")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": first_match(info, r"^model name\s*:(.*)$") or platform.processor() or platform.machine(),
        "cpu_family": first_match(info, r"^cpu family\s*:(.*)$"),
        "cpu_model": first_match(info, r"^model\s*:(.*)$"),
        "flags": [f for f in FLAGS if f in flags],
        "hypervisor": "hypervisor" in flags,
        "logical_cpus": cores,
        "ram_bytes": int(memory) * 1024 if memory else None,
        "kernel": f"{platform.system()} {platform.release()}",
        "transparent_huge_pages": first_match("/sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]"),
    }


def git(*command):
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout.decode().strip() if done.returncode == 0 else None


def shards(model):
    found = re.search(r"-00001-of-(\d{5})\.gguf$", model.name)
    if not found:
        return [model]
    stem = model.name[: found.start()]
    return [model.parent / f"{stem}-{i:05}-of-{found[1]}.gguf" for i in range(1, int(found[1]) + 1)]


def public(path):
    """A path as others may see it: within the project, or a name alone."""
    return str(path.relative_to(ROOT)) if ROOT in path.parents else path.name


def shown(command, args, model):
    """A command without paths of this machine."""
    known = {str(args.strata): "strata", str(model): public(model), str(args.corpus): public(args.corpus),
             sys.executable: "python3", str(WORKER): public(WORKER)}
    return " ".join(shlex.quote(known.get(part, part)) for part in command)


def profile(args, argv, measures, info):
    version = subprocess.run([str(args.strata), "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if version.returncode:
        raise Refused(f"{args.strata} does not say its version: it is no strata binary")
    model = args.models[0]
    commands = []
    for m in measures:
        commands.append(shown(strata_command(args, model, m, 1), args, model))
        worker = llama_command(args, model, llama_plan(args, m, 1))[:2]
        plan = {**llama_plan(args, m, 1), "model": public(model), "corpus": public(args.corpus)}
        commands.append(shown([*worker, json.dumps(plan)], args, model))
    return {
        "machine": machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "finished": None,
        "complete": False,
        "command": " ".join(shlex.quote(Path(a).name if os.path.isabs(a) or a.startswith((".", "~")) else
                                        re.sub(r"=[./~].*/", "=", a)) for a in ["run.py", *argv]),
        "commands_of_round_1": commands,
        "strata": {
            "version": version.stdout.decode().strip(),
            "sha256": hashlib.sha256(args.strata.read_bytes()).hexdigest(),
            "commit": git("rev-parse", "--short=12", "HEAD"),
            "commit_is": "that of this checkout, from which the binary should have been built",
            "changed_since": bool(git("status", "--porcelain", "--untracked-files=no", "--", "engine", "Cargo.toml", "Cargo.lock")),
        },
        "llama_cpp": {
            "package": PACKAGE,
            "version": importlib.metadata.version(PACKAGE),
            "libraries": "of --llama-lib" if args.llama_lib else "of the package",
            "system": info["system"],
            "settings": "defaults (batch 2048, micro-batch 512, KV of the default type, memory-mapped), no GPU layers",
        },
        "models": [],
        "corpus": public(args.corpus),
        "threads": args.threads,
        "rounds": args.rounds,
        "warm_up": args.warm_up,
        "decode_tokens": args.decode,
        "decode_context": args.context,
        "prefill_tokens": args.prompts,
        "patience_seconds": args.patience,
        "others_at_most": DISTURBED,
        "order": "interleaved, ABBA, a process for each round and engine",
        "seed_of_bootstrap": SEED,
        "load_average": {"before": load(), "after": None},
        "notes": [],
        "deterministic": {"times": False},
    }


# --- what comes out ---


def disturbed(row):
    return any(share is not None and share > DISTURBED for share in row[7:9])


def interval(samples):
    if len(samples) < 2:
        return None
    draw = random.Random(SEED)
    medians = sorted(statistics.median(draw.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    return [medians[round((RESAMPLES - 1) * share)] for share in (TAIL, 1 - TAIL)]


def verdict(target, ends, ours):
    if target is None:
        return "-"
    # A median bears few pairs that are too high.
    if sum(map(disturbed, ours)) > len(ours) / 4:
        return "disturbed"
    # Not even the range of five samples holds the median 95 times in 100.
    if len(ours) < 6:
        return "undecided"
    low, high = ends
    return "yes" if low >= target else "no" if high < target else "undecided"


def summary(meta, measures, rows):
    def rate(samples):
        ends = interval(samples)
        return f"{statistics.median(samples):.1f}" + (f" [{ends[0]:.1f}, {ends[1]:.1f}]" if ends else "")

    m = meta["machine"]
    ram = f", {m['ram_bytes'] / 1e9:.0f} GB RAM" if m["ram_bytes"] else ""
    before, after = meta["load_average"]["before"], meta["load_average"]["after"]
    text = ["# Strata beside llama.cpp on the CPU", ""]
    if not meta["complete"]:
        text += ["**Not complete**: the run ended early, and the table shows the rounds that it finished.", ""]
    text += [
        f"Machine: {m['logical_cpus']} logical CPUs of {m['cpu']} ({', '.join(m['flags'])})"
        f"{' in a virtual machine' if m['hypervisor'] else ''}{ram}, {m['kernel']}; "
        f"load average {before and before[0]} before, {after and after[0]} after. Date: {meta['date'][:10]}.",
        "",
        f"{meta['strata']['version']} (checkout at {meta['strata']['commit']}{', changed' if meta['strata']['changed_since'] else ''}), "
        f"{PACKAGE} {meta['llama_cpp']['version']} with the libraries {meta['llama_cpp']['libraries']}; "
        f"{meta['threads']} threads each, {meta['rounds']} rounds in ABBA order.",
        "",
        "| model | measure | strata, tokens/s | llama.cpp, tokens/s | ratio | 95 % interval | target | met? |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in meta["models"]:
        for measure in measures:
            ours = [r for r in rows if r[0] == model["name"] and r[1] == measure.name]
            if not ours:
                continue
            ratios = [r[6] for r in ours]
            ratio, ends, target = statistics.median(ratios), interval(ratios), measure.target(model["kind"])
            cells = [model["name"], measure.name, rate([r[4] for r in ours]), rate([r[5] for r in ours]), f"{ratio:.2f}"]
            cells.append(f"[{ends[0]:.2f}, {ends[1]:.2f}]" if ends else "-")
            cells += [f"{target}x" if target else "-", verdict(target, ends, ours)]
            if len(ours) < meta["rounds"]:
                cells[1] += f" ({len(ours)} of {meta['rounds']} rounds)"
            text.append("| " + " | ".join(cells) + " |")
    count = sum(map(disturbed, rows))
    if count:
        text += ["", f"**Disturbed**: in {count} of {len(rows)} pairs others used more than {DISTURBED:.0%} of the machine while one of "
                 "the two ran (`strata_others`, `llama_others`). llama.cpp's threads spin while they wait for each other and suffer "
                 "far more from that, so ratios are too high; where more than a quarter of the pairs are such, there is no verdict."]
    text += [
        "",
        f"The ratio is the median of the rounds' own ratios, its interval a percentile bootstrap ({RESAMPLES:,} resamples, seed "
        f"{SEED}); it need not be the quotient of the medians beside it. A target is met when the whole interval reaches it, "
        "missed when none of it does. llama.cpp reads given text, and choosing tokens is not in its time; strata's time "
        f"holds its greedy choice. Decoding starts behind {meta['decode_context']} tokens. All samples are in `rows.csv`.",
        "",
    ]
    return "\n".join(text)


def write(args, meta, measures, rows):
    for name, text in (("meta.json", json.dumps(meta, indent=2) + "\n"), ("summary.md", summary(meta, measures, rows))):
        new = args.out / (name + ".new")
        new.write_text(text, encoding="utf-8")
        new.replace(args.out / name)


def index(args):
    """What results/INDEX.md says of it, if this is one of the results; `just report` makes the list."""
    path = args.out / "entry.toml"
    if args.out.parent == ROOT / "results" and not path.exists():
        path.write_text('what = "Strata beside llama.cpp on the CPU: reading and writing speed"\nverdict = "see summary"\n', encoding="utf-8")


# --- the run ---


def kind_of(args, model):
    """nano, or the type that most of a file's weights have, by strata's word."""
    if model == NANO:
        return "nano"
    command = [str(args.strata), "bench", "decode", str(model), "--threads", str(args.threads), "--prompt-tokens", "1"]
    command += ["--output-tokens", "2", "--repetitions", "1", "--warm-up", "0", "--corpus", str(args.corpus), "--json"]
    return child("strata", command, args)["model"]["type"]


def read_once(model, meta):
    """Both find the file in the page cache, whoever is first."""
    size = 0
    for part in shards(model):
        with open(part, "rb", buffering=0) as file:
            while True:
                piece = file.read(1 << 24)
                if not piece:
                    break
                size += len(piece)
    free = first_match("/proc/meminfo", r"^MemAvailable:\s*(\d+) kB")
    if free and size > 0.8 * int(free) * 1024:
        note = f"{model.name} may not fit in the page cache: the disk is measured too"
        meta["notes"].append(note)
        say("note: " + note)
    return size


def measure_all(args, meta, measures, rows, out):
    for model in args.models:
        say(f"{model.name}: reading the file")
        size = read_once(model, meta)
        kind = kind_of(args, model)
        meta["models"].append({"name": model.name, "bytes": size, "kind": kind})
        for number in range(1, args.rounds + 1):
            for at, measure in enumerate(measures):
                engines = {"strata": strata, "llama.cpp": llama}
                # ABBA, the measures beginning in turns.
                order = list(engines) if (number + at) % 2 else list(reversed(engines))
                before, rates = load(), {}
                for name in order:
                    wait_for_quiet(args)
                    rates[name] = engines[name](args, model, measure, number)
                (ours, busy), (theirs, busy_too) = rates["strata"], rates["llama.cpp"]
                row = [model.name, measure.name, number, order[0], ours, theirs, ours / theirs, busy, busy_too, before and before[0]]
                rows.append(row)
                csv.writer(out, lineterminator="\n").writerow([f"{v:.4f}" if i in (4, 5, 6) else v for i, v in enumerate(row)])
                out.flush()
                say(f"{model.name}, {measure.name}, round {number} of {args.rounds}: strata {ours:.1f}, "
                    f"llama.cpp {theirs:.1f} tokens/s, ratio {ours / theirs:.2f}{', disturbed' if disturbed(row) else ''}")


def interrupted(*_):
    raise KeyboardInterrupt


def run(argv):
    args = arguments(argv)
    measures = [Measure(args, args.context, args.decode)] + [Measure(args, n, 0) for n in args.prompts]
    for model in args.models:
        try:
            info = child("llama.cpp", llama_command(args, model, {"task": "probe"}), args)
        except Failed as e:
            raise Refused(f"{model.name}: {e}") from e
        needed = max(m.tokens(args.rounds) for m in measures)
        if info["tokens"] < needed:
            raise Refused(f"the corpus has {info['tokens']} tokens in {model.name} and {needed} are needed; "
                          "fewer --rounds, shorter lengths or a longer --corpus is needed")
    meta = profile(args, argv, measures, info)
    rows, status = [], 1
    signal.signal(signal.SIGTERM, interrupted)
    with open(args.out / "rows.csv", "w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerow(COLUMNS)
        out.flush()
        try:
            measure_all(args, meta, measures, rows, out)
            meta["complete"], status = True, 0
        except Failed as e:
            say(f"cpu-peer: {e}")
        except KeyboardInterrupt:
            say("cpu-peer: interrupted")
            status = 130
        finally:
            meta["load_average"]["after"] = load()
            meta["finished"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            write(args, meta, measures, rows)
    if status == 0:
        index(args)
    say(f"rows.csv, meta.json and summary.md lie in {args.out}")
    return status


def main():
    try:
        return run(sys.argv[1:])
    except Refused as e:
        say(f"cpu-peer: {e}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
