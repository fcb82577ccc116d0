"""How often Python looks for garbage while a model is loaded, and afterwards."""

from __future__ import annotations

import gc

from golem_core import background


def test_loading_is_not_held_up_by_looking_for_garbage_and_serving_looks_as_usual() -> None:
    searches = []
    count = lambda phase, info: searches.append(info["generation"])
    given = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(count)
    try:
        background.collect_seldom()
        pairs = [(f"{number}", "a") for number in range(514_000)]  # as many as the merges of a large vocabulary
        assert searches == []
        background.collect_as_usual()
        pairs += [(f"{number}", "b") for number in range(10_000)]
        assert gc.get_threshold() == background.THRESHOLDS and searches
    finally:
        gc.callbacks.remove(count)
        gc.unfreeze()
        gc.set_threshold(*given)
