"""How fast this machine reads memory, and how much of a file a token's pass reads."""

from __future__ import annotations

import threading
import time

import numpy as np

from golem_core import ModelFile

BYTES = 512 << 20
"""Read by each thread at a time: much more than any cache holds."""


def read_rate(threads: int, times: int = 3) -> float:
    """Bytes a second that so many threads together read, the best of a few times."""
    parts = [np.ones(BYTES, np.uint8) for _ in range(threads)]

    def read_all() -> float:
        readers = [threading.Thread(target=np.maximum.reduce, args=(part,)) for part in parts]  # without the GIL
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return threads * BYTES / (time.perf_counter() - start)

    return max(read_all() for _ in range(times))


def weights_bytes(file: ModelFile) -> int:
    """Bytes of weights that drawing one token reads: all but an embedding that is no head, and the experts used."""
    keys = file.metadata.scoped(file.architecture)
    experts, used = keys.get("expert_count", 0), keys.get("expert_used_count", 0)
    total = 0
    for name, weight in file.weights.items():
        if name == "token_embd.weight" and "output.weight" in file.weights:
            total += weight.row_nbytes
        else:
            total += weight.nbytes * used // experts if "_exps." in name else weight.nbytes
    return total
