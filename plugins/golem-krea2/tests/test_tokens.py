"""Prompts become the ids that transformers' tokenizer gives, cut at brackets as ComfyUI cuts them."""

from __future__ import annotations

import base64
import json
import unicodedata
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from golem_krea2.tokens import DEEPEST, Tokens, pieces

from golem_core import BadFile, BadRequest


@pytest.fixture(scope="module")
def tokens(tiny, tmp_path_factory):
    return Tokens(tiny.write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def test_random_texts_give_the_ids_of_transformers(tokens):
    rows = json.loads((Path(__file__).with_name("fixtures") / "tokens.json").read_text())
    assert len(rows) == 1500
    wrong = [text for text, ids in rows if tokens.encode(text) != ids]
    assert not wrong


def test_text_is_composed_and_lone_surrogates_are_replaced(tokens):
    assert tokens.encode("e\u0301") == tokens.encode(unicodedata.normalize("NFC", "e\u0301")) == tokens.encode("é")
    assert tokens.encode("\ud800") == tokens.encode("\ufffd")


def test_the_conditioning_begins_behind_the_template(tokens):
    ids, start = tokens.prompt("a red fox")
    assert ids[start:] == tokens.encode("a red fox<|im_end|>\n<|im_start|>assistant\n")
    assert ids[:start] == tokens.prompt("")[0][:start]
    assert ids.count(tokens.encode("<|im_start|>")[0]) == 3


def test_braces_in_a_prompt_are_no_places(tokens):
    ids, start = tokens.prompt("{} {0}")
    assert ids[start:] == tokens.encode("{} {0}<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a cat", ["a cat"]),
        ("", []),
        ("a (red:1.3) cat", ["a ", "red", " cat"]),
        ("((wooden)) table", ["wooden", " table"]),
        ("a (b (c:2) d:1.5) e", ["a ", "b ", "c", " d", " e"]),
        (r"\(film grain\)", ["(film grain)"]),
        (r"(a \(b\):2)", ["a (b)"]),
        ("(time:noon)", ["time:noon"]),
        ("(:2)", [":2"]),
        ("(a:b:2)", ["a:b"]),
        ("(a: 1e3 )", ["a"]),
        ("(a:nan)", ["a"]),
        ("()", []),
        ("(a", ["(a"]),
        ("a) b (c) d", ["a) b (c) d"]),
        ("a) b ((c) d", ["a) b (", "c", " d"]),
        ("((a)", ["(a"]),
    ],
)
def test_brackets_cut(text, cut):
    assert pieces(text) == cut


def reference(text: str) -> list[str]:
    """The same by recursion, character by character."""
    parts, now, depth = [], "", 0
    for character in text:
        if character == "(":
            if depth == 0:
                parts, now = parts + ([now] if now else []), ""
            now, depth = now + character, depth + 1
        elif character == ")":
            now, depth = now + character, depth - 1
            if depth == 0:
                parts, now = [*parts, now], ""
        else:
            now += character
    out = []
    for part in parts + ([now] if now else []):
        if len(part) < 2 or part[0] != "(" or part[-1] != ")":
            out.append(part)
            continue
        part = part[1:-1]
        left, colon, right = part.rpartition(":")
        with suppress(ValueError):
            part = left if colon and left and float(right) is not None else part
        out += reference(part)
    return out


def test_random_brackets_cut_alike():
    import random

    dice = random.Random(1)
    for _ in range(20_000):
        text = "".join(dice.choice(["(", ")", ":", "1.5", "a", " b", "\\"]) for _ in range(dice.randrange(24)))
        hidden = text.replace("\\)", "\0\1").replace("\\(", "\0\2")
        cut = [each.replace("\0\1", ")").replace("\0\2", "(") for each in reference(hidden) if each]
        assert pieces(text) == cut, text


def test_words_are_tokenized_in_pieces_unless_brackets_stay(tokens):
    ids, start = tokens.prompt("a (red:1.3) cat")
    inner = tokens.encode("<|im_start|>user\na ")[-len(tokens.encode("a ")) :] + tokens.encode("red")
    assert ids[start:][: len(inner)] == inner
    ids, start = tokens.prompt("a (red:1.3) cat", brackets=False)
    assert ids[start:] == tokens.encode("a (red:1.3) cat<|im_end|>\n<|im_start|>assistant\n")


def test_brackets_too_deep_are_refused(tokens):
    tokens.prompt("(" * DEEPEST + "a" + ")" * DEEPEST)
    with pytest.raises(BadRequest, match="more than 100 brackets"):
        tokens.prompt("(" * 2000 + "a" + ")" * 2000)
    tokens.prompt("(" * 4096)


@pytest.mark.parametrize("text", ["(" * 4097, "()" * 2049, "(a)" * 80_000, "( " * 60_000 + ") " * 60_000])
def test_brackets_too_many_are_refused(tokens, text):
    with pytest.raises(BadRequest, match=r"prompt: \d+ brackets, at most 4096") as refused:
        tokens.prompt(text)
    assert refused.value.param == "prompt"
    tokens.prompt(text, brackets=False)
    tokens.prompt("\\(" * 5000)


def remake(folder: Path, name: str, change) -> Path:
    path = folder / name
    path.write_text(change(path.read_text()))
    return path


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("vocab.json", lambda text: text[: len(text) // 2], "vocab.json: not JSON"),
        ("vocab.json", lambda text: '{"a": 1.5}', "vocab.json: an object of texts and their ids"),
        ("vocab.json", lambda text: '{"a": 0, "b": 0}', "vocab.json: the ids are not those from 0 to 1"),
        ("vocab.json", lambda text: text.replace('"a":', '"zzzz":'), "vocab.json: there is no token 'a'; every byte"),
        ("vocab.json", lambda text: text.replace('"a":', r'"\ud800":'), "vocab.json: not JSON: .*surrogates"),
        ("merges.txt", lambda text: text + "one two three\n", "merges.txt: 'one two three' is no pair"),
        ("merges.txt", lambda text: text + "漢 字\n", "merges.txt: the merges don't go with vocab.json"),
        ("merges.txt", lambda text: "", "merges.txt: there are no merges"),
        ("tokenizer_config.json", lambda text: "{}", "'added_tokens_decoder' is missing"),
        ("tokenizer_config.json", lambda text: '{"added_tokens_decoder": {"x": {}}}', "added_tokens_decoder is 'x'"),
        ("tokenizer_config.json", lambda text: '{"added_tokens_decoder": {"1": {}}}', "added_tokens_decoder.1 is"),
        ("tokenizer_config.json", lambda text: '{"added_tokens_decoder": {"01": {}}}', "added_tokens_decoder is '01'"),
        ("tokenizer_config.json", lambda text: text.replace("im_end", r"\udc00"), "tokenizer_config.json: not JSON"),
        (
            "tokenizer_config.json",
            lambda text: '{"added_tokens_decoder": {"999": {"content": "<|im_start|>"}}}',
            "is the token 999, which is not the next",
        ),
        ("tokenizer_config.json", lambda text: '{"added_tokens_decoder": {}}', r"there is no token '<\|im_start\|>'"),
    ],
)
def test_files_that_are_no_tokenizer_are_named(tiny, tmp_path, file, change, said):
    remake(tiny.write_tokenizer(tmp_path), file, change)
    with pytest.raises(BadFile, match=said):
        Tokens(tmp_path)


@pytest.mark.parametrize("file", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_files_that_are_missing_are_named(tiny, tmp_path, file):
    (tiny.write_tokenizer(tmp_path) / file).unlink()
    with pytest.raises(BadFile, match=file):
        Tokens(tmp_path)


# ---------------------------------------------------------------- the real vocabulary


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Qwen's vocabulary, which dashscope carries as a list of tokens by rank: merges are made out of the ranks."""
    found = find_spec("dashscope")
    path = None if found is None or found.origin is None else Path(found.origin).parent / "resources" / "qwen.tiktoken"
    if path is None or not path.exists():
        pytest.skip("the package dashscope, which carries Qwen's vocabulary, is not installed")
    ranks = {base64.b64decode(text): int(rank) for text, rank in map(bytes.split, path.read_bytes().splitlines())}
    letters = printable()
    spelled = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token in ranks:
        if len(token) > 1:
            left, right = halves(token, ranks)
            merges.append(f"{spelled[left]} {spelled[right]}")
    folder = tmp_path_factory.mktemp("real")
    (folder / "vocab.json").write_text(json.dumps({spelled[token]: rank for token, rank in ranks.items()}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    added = {"151643": "<|endoftext|>", "151644": "<|im_start|>", "151645": "<|im_end|>"}
    table = {token: {"content": text} for token, text in added.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": table}))
    return Tokens(folder)


def printable() -> list[str]:
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in own else next(others)) for byte in range(256)]


def halves(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """What was joined to make a token: what is left when its bytes are merged by ranks below its own."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(a + b, 1 << 40) for a, b in pairwise(parts)]
        i = joined.index(min(joined))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0], parts[1]


PREFIX = [
    151644, 8948, 198, 74785, 279, 2168, 553, 44193, 279, 1894, 11, 6083, 11, 1379, 11, 10434, 11, 12194, 11, 1467, 11,
    27979, 11871, 315, 279, 6171, 323, 4004, 25, 151645, 198, 151644, 872, 198,
]  # fmt: skip
SUFFIX = [151645, 198, 151644, 77091, 198]
WEIGHTED = r"a (red:1.3) cat on a ((wooden)) table, \(film grain\)"


@pytest.mark.parametrize(
    ("prompt", "brackets", "ids"),
    [
        ("", True, []),
        ("a cat", True, [64, 8251]),
        ("a red fox in the snow, photo", True, [64, 2518, 38835, 304, 279, 11794, 11, 6548]),
        ("a red fox in the snow, photo", False, [64, 2518, 38835, 304, 279, 11794, 11, 6548]),
        (
            WEIGHTED,
            True,
            [64, 220, 1151, 8251, 389, 264, 220, 6660, 268, 1965, 11, 320, 30155, 23925, 8],
        ),
        (
            WEIGHTED,
            False,
            [
                64, 320, 1151, 25, 16, 13, 18, 8, 8251, 389, 264, 1781, 6660, 268, 593, 1965, 11, 320, 30155, 23925, 8,
            ],
        ),
    ],
)  # fmt: skip
def test_the_real_vocabulary(real, prompt, brackets, ids):
    assert real.prompt(prompt, brackets=brackets) == ([*PREFIX, *ids, *SUFFIX], 34)
