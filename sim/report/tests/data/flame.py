"""Makes the folder flame/ beside this file: the layout of FLAME-MoE-Traces, small and with contents that a test can compute.

    pip install pyarrow==26.0.1
    python flame.py
"""
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent / "flame"
TOKENS, LAYERS, USED, EXPERTS = 60, [2, 3, 10], 3, 8


def write(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


for part, rows in enumerate([range(0, 40), range(40, TOKENS)]):
    write(HERE / f"samples/{part:03}.parquet", {"token_id": pa.array([1000 + 7 * i for i in rows], pa.int32())})
for iteration in [540, 5473]:
    for layer in LAYERS:
        ids = [[(i + 3 * j + layer + iteration) % EXPERTS for j in range(USED)] for i in range(TOKENS)]
        scores = [[0.5, 0.25, 0.125] if i % 2 else [0.25, 0.125, 0.0625] for i in range(TOKENS)]
        half = pa.list_(pa.float16())
        flat = pa.array([s for row in scores for s in row], pa.float32()).cast(pa.float16())
        offsets = pa.array(range(0, USED * TOKENS + 1, USED), pa.int32())
        write(HERE / f"actives/iter_{iteration:04}/layer_{layer:02}.parquet", {
            "scores": pa.ListArray.from_arrays(offsets, flat),
            "indices": pa.array(ids, pa.list_(pa.int16())),
        })
