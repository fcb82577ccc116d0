"""Each sampling rule stated slowly, on Python numbers: no arrays, no shortcuts."""

from __future__ import annotations

import math
from collections import Counter


def penalised(logits, window, repeat, frequency, presence):
    result = list(logits)
    for token, count in Counter(window).items():
        value = result[token] * repeat if result[token] <= 0 else result[token] / repeat
        result[token] = value - (count * frequency + presence)
    return result


def by_logit(logits, ids):
    return sorted((i for i in ids if logits[i] > -math.inf), key=lambda i: (-logits[i], i))


def top_k(logits, ids, k):
    return list(ids) if k <= 0 or k >= len(logits) else by_logit(logits, ids)[:k]


def top_p(logits, ids, p):
    if p >= 1:
        return list(ids)
    order = by_logit(logits, ids)
    weights = [math.exp(logits[i] - logits[order[0]]) for i in order]
    total, running = math.fsum(weights), 0.0
    for count, weight in enumerate(weights, 1):
        running += weight
        if running >= p * total:
            return order[:count]
    return order


def min_p(logits, ids, share):
    if share <= 0:
        return list(ids)
    bound = max(logits[i] for i in ids) + math.log(share)
    return [i for i in ids if logits[i] >= bound]


def probabilities(logits, ids, temperature):
    peak = max(logits[i] for i in ids)
    weights = {i: math.exp((logits[i] - peak) / temperature) for i in ids}
    total = math.fsum(weights.values())
    return {i: weight / total for i, weight in weights.items()}
