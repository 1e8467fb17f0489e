"""Counts the hits of libCacheSim's LRU, LFU, Belady and S3-FIFO on two made-up traces.

    pip install libcachesim==0.3.5
    python experiments/libcachesim/golden.py > engine/policy/tests/data/libcachesim.json

The traces are those of engine/policy/tests/cache/golden.rs, made by the same integer arithmetic; a checksum of each is
written beside the counts, and the test compares it first.
"""

import importlib.metadata
import json

import libcachesim as lcs

MASK = (1 << 64) - 1


class SplitMix64:
    """Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return (self.next() * n) >> 64


def trace(seed, layers, experts, used, tokens, reuse):
    """Keys in the order of time. `reuse` of 100 experts are those of the token before; the others are skewed to low
    numbers, whose meaning drifts."""
    random = SplitMix64(seed)
    before = [[] for _ in range(layers)]
    keys = []
    for token in range(tokens):
        for layer in range(layers):
            chosen = []
            while len(chosen) < used:
                if before[layer] and random.below(100) < reuse:
                    expert = before[layer][random.below(used)]
                else:
                    skewed = random.below(1 + random.below(1 + random.below(experts)))
                    expert = (skewed + token // 500 * 7) % experts
                if expert not in chosen:
                    chosen.append(expert)
            before[layer] = chosen
            keys.extend(layer * experts + expert for expert in chosen)
    return keys


def fnv(keys):
    """FNV-1a over the keys as 32-bit little-endian numbers."""
    hash = 0xCBF29CE484222325
    for key in keys:
        for byte in key.to_bytes(4, "little"):
            hash = ((hash ^ byte) * 0x100000001B3) & MASK
    return hash


def next_uses(keys):
    later, out = {}, [0] * len(keys)
    for i in range(len(keys) - 1, -1, -1):
        out[i] = later.get(keys[i], (1 << 63) - 1)
        later[keys[i]] = i
    return out


def hits(policy, size, keys, following):
    cache = getattr(lcs, policy)(cache_size=size)
    count = 0
    for time, (key, after) in enumerate(zip(keys, following)):
        request = lcs.Request(obj_id=key, obj_size=1, clock_time=time, next_access_vtime=after)
        count += cache.get(request)
    return count


def main():
    out = {"libcachesim": importlib.metadata.version("libcachesim"), "traces": []}
    for name, arguments, sizes in [
        ("layers", (1, 6, 64, 4, 3000, 45), (30, 75, 150)),
        ("flat", (2, 1, 2000, 1, 60000, 20), (50, 300, 900)),
    ]:
        keys = trace(*arguments)
        following = next_uses(keys)
        counts = []
        for policy in ("LRU", "LFU", "Belady", "S3FIFO"):
            counts += [[policy, size, hits(policy, size, keys, following)] for size in sizes]
        out["traces"].append({"name": name, "accesses": len(keys), "fnv1a": f"{fnv(keys):016x}", "hits": counts})
    print(json.dumps(out, indent=1))


main()
