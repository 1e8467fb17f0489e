#!/usr/bin/env python3
"""How many of the draft layer's drafts are accepted, by position and by kind of conversation. README.md says more."""

import argparse
import csv
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CONVERSATIONS = ROOT / "engine/cli/model/conversations.jsonl"
ASSISTANT = "<|im_start|>assistant\n"
SEED, RESAMPLES, TAIL = 1, 10_000, 0.025
TARGET = 2.5


def whole(text):
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return value


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--strata", type=Path, default=ROOT / "target/release/strata", help="the binary [%(default)s]")
    p.add_argument("--conversations", type=Path, default=CONVERSATIONS, help="JSON lines with kind and text")
    p.add_argument("--spec", type=whole, default=3, help="drafts in each round [%(default)s]")
    p.add_argument("--norm", choices=["whole", "per-stream", "auto"], default="whole",
                   help="the draft layer's hidden norm [%(default)s, as nano was trained]")
    p.add_argument("--max-tokens", type=whole, default=128, help="longest answer [%(default)s]")
    p.add_argument("--first", type=whole, help="take so many conversations of each kind [all]")
    p.add_argument("--jobs", type=whole, default=2, help="conversations at once [%(default)s]; counts do not depend on it")
    p.add_argument("--out", type=Path, help="folder for rows.csv, meta.json and summary.md")
    return p.parse_args()


def prompts(args):
    """Each conversation up to where its last answer begins."""
    seen = {}
    with open(args.conversations, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                kind, text = entry["kind"], entry["text"]
            except (ValueError, KeyError, TypeError):
                raise SystemExit(f"{args.conversations} line {number} is no object with kind and text")
            seen[kind] = seen.get(kind, 0) + 1
            end = text.rfind(ASSISTANT)
            if end >= 0 and seen[kind] <= (args.first or seen[kind]):
                yield number, kind, text[:end + len(ASSISTANT)]


def answer(args, prompt):
    command = [str(args.strata), "run", "--raw", "--json", "--quiet", "--threads", "1", "--spec", str(args.spec)]
    command += ["--draft", "mtp", "--draft-norm", args.norm, "--max-tokens", str(args.max_tokens)]
    done = subprocess.run(command, input=prompt, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"strata failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def interval(rows, figure):
    """The 95 % bootstrap interval of a figure over conversations."""
    rng = random.Random(SEED)
    drawn = sorted(figure(rng.choices(rows, k=len(rows))) for _ in range(RESAMPLES // 10))
    return drawn[int(TAIL * len(drawn))], drawn[int((1 - TAIL) * len(drawn)) - 1]


def per_round(rows):
    """Committed tokens in a round; the first token of an answer comes with its prompt."""
    rounds = sum(r["rounds"] for r in rows)
    return sum(r["tokens"] - 1 for r in rows) / rounds if rounds else 0.0


def main():
    args = arguments()
    if not args.strata.is_file():
        raise SystemExit(f"there is no binary at {args.strata}; `just build` makes it, or name one with --strata")
    work = list(prompts(args))
    rows = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for (number, kind, _), found in zip(work, pool.map(lambda w: answer(args, w[2]), work)):
            counts = found["speculation"]["counts"]
            row = {"conversation": number, "kind": kind, "tokens": len(found["tokens"]), "rounds": counts["rounds"],
                   "finish": found["finish"]}
            for i in range(args.spec):
                tally = counts["positions"][i] if i < len(counts["positions"]) else {"verified": 0, "accepted": 0}
                row |= {f"verified_{i + 1}": tally["verified"], f"accepted_{i + 1}": tally["accepted"]}
            rows.append(row)
            if sys.stderr.isatty():
                print(f"\r{len(rows)} of {len(work)}", end="", file=sys.stderr)
    if not rows:
        raise SystemExit(f"{args.conversations} has no conversation with an answer")

    def share(part, i):
        verified = sum(r[f"verified_{i}"] for r in part)
        return f"{100 * sum(r[f'accepted_{i}'] for r in part) / verified:.1f} %" if verified else "-"

    positions = range(1, args.spec + 1)
    table = ["| kind | conversations | tokens | tokens per round | 95 % interval | "
             + " | ".join(f"draft {i} accepted" for i in positions) + " |", "|---" * (5 + args.spec) + "|"]
    groups = [(kind, [r for r in rows if r["kind"] == kind]) for kind in sorted({r["kind"] for r in rows})]
    for kind, part in groups + [("all", rows)]:
        low, high = interval(part, per_round)
        cells = [kind, len(part), sum(r["tokens"] for r in part), f"{per_round(part):.2f}", f"[{low:.2f}, {high:.2f}]"]
        table.append("| " + " | ".join(map(str, cells + [share(part, i) for i in positions])) + " |")
    reached = per_round(rows) >= TARGET
    text = "\n".join(table) + f"\n\nTarget: {TARGET} tokens per round over all kinds: {'met' if reached else 'missed'}.\n"
    print(text)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        with open(args.out / "rows.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        version = subprocess.run([args.strata, "--version"], capture_output=True, text=True).stdout.strip()
        revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        meta = {"experiment": "draft-acceptance", "strata": version, "revision": revision, "spec": args.spec,
                "norm": args.norm, "max_tokens": args.max_tokens, "conversations": len(rows), "bootstrap_seed": SEED}
        (args.out / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        (args.out / "table.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
