"""docs/plugins.md, held to its word: every example is taken out of the page, installed as a package, and run."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
from repository_layout import PACKAGES, ROOT, public_names
from test_boundaries import uses_beyond

import golem_core
from golem_core import (
    Columns,
    Graph,
    ModelFile,
    Reference,
    SamplerChain,
    SamplerContext,
    SamplingParams,
    Unsupported,
    hookspecs,
    open_model,
    plugins,
    sampling,
    tokenizer_from_metadata,
)
from golem_core.cpu.device import CpuDevice
from golem_core.graph import Op, ops
from golem_core.text import pretokenizers

PAGE = ROOT / "docs" / "plugins.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = {name: code for name, code in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)}
DEVICES = ("cpu", "numpy", "planned")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's examples lie as installed packages, with the file that its script writes."""
    folder = tmp_path_factory.mktemp("packages")
    for name, code in EXAMPLES.items():
        (folder / name).write_text(code, encoding="utf-8")
    entries = tomllib.loads(EXAMPLES["pyproject.toml"])["project"]["entry-points"]["golem"]
    entries |= {name[6:-3]: name[:-3] for name in EXAMPLES if re.search("^@hookimpl", EXAMPLES[name], re.MULTILINE)}
    for name, module in entries.items():
        about = folder / f"golem_{name}-0.1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: golem-{name}\nVersion: 0.1.0\n")
        (about / "entry_points.txt").write_text(f"[golem]\n{name} = {module}\n")
    for script in ("make_toy.py", "make_bag.py"):
        subprocess.run([sys.executable, script], cwd=folder, check=True)
    return folder


def start(shop: Path, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GOLEM_")}
    path = os.pathsep.join(filter(None, [str(shop), os.environ.get("PYTHONPATH")]))
    environment |= {"PYTHONPATH": path, "GOLEM_PLUGINS": "toy,bag,numpy,planned,lipogram,count,extras"} | settings
    program = [sys.executable, "-c", "from golem_core.cli import main; main()", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(program, cwd=shop, env=environment, text=True, encoding="utf-8", **pipes)


def golem(shop: Path, *arguments: str) -> str:
    """What the program says on standard output."""
    running = start(shop, *arguments)
    out, error = running.communicate(timeout=120)
    assert running.returncode == 0, error
    return out


def module(shop: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, shop / f"{name}.py")
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


# ---------------------------------------------------------------- the examples


def test_the_page_has_an_example_of_every_kind() -> None:
    assert {name.removesuffix(".py") for name in EXAMPLES} == {
        *("pyproject.toml", "make_toy", "golem_toy", "golem_clamp", "golem_numpy", "golem_planned"),
        *("golem_bag", "make_bag", "golem_lipogram", "golem_count", "golem_extras", "test_toy"),
    }
    assert len(re.findall(r"^```python", TEXT, re.MULTILINE)) == len(EXAMPLES) - 1, "one is no file of its own"


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.endswith(".py")])
def test_an_example_uses_only_public_names(name: str) -> None:
    tests = {"plugins"} if name.startswith("test_") else set()
    assert uses_beyond(EXAMPLES[name], "golem_core", public_names() | tests) == []


def test_every_example_is_found_with_its_hooks(shop: Path) -> None:
    listed = json.loads(golem(shop, "plugins", "--json"))
    assert [each["failures"] for each in listed] == [[]] * len(listed)
    assert {each["name"]: each["hooks"] for each in listed if each["name"] != "golem-core"} == {
        "toy": ["golem_architectures"],
        "bag": ["golem_architectures"],
        "numpy": ["golem_devices"],
        "planned": ["golem_devices"],
        "lipogram": ["golem_samplers"],
        "count": ["golem_endpoints"],
        "extras": ["golem_commands", "golem_default_models", "golem_endpoints", "golem_options"],
    }


@pytest.mark.parametrize("device", DEVICES)
def test_the_architecture_answers_on_every_device(shop: Path, device: str) -> None:
    answer = golem(shop, "run", "-model", "toy.gguf", "-device", device, "-n", "8", "-p", "xyzabc")
    assert answer.strip() == "defghijk"
    assert f"-p xyzabc       # {answer.strip()}" in TEXT


@pytest.mark.parametrize("device", DEVICES)
def test_the_embedding_model_answers_on_every_device(shop: Path, device: str) -> None:
    lines = golem(shop, "embed", "-embed", "bag.gguf", "-device", device, "-dimensions", "8", "ab", "abba", "c")
    answers = [json.loads(line) for line in lines.splitlines()]
    assert [each["text"] for each in answers] == ["ab", "abba", "c"]
    with open_model(shop / "bag.gguf") as file:
        table = file.weights.token_embd.dequantize()
    for answer in answers:
        mean = table[[1 + byte for byte in answer["text"].encode()]].mean(0)[:8]
        np.testing.assert_allclose(answer["embedding"], mean / np.linalg.norm(mean), atol=1e-6)


def test_the_embedding_model_is_served_alone_and_as_the_model(shop: Path) -> None:
    for option in ("-embed", "-model"):
        running = start(shop, "serve", option, "bag.gguf", "-addr", "127.0.0.1:0")
        try:
            assert running.stderr is not None
            said = ""
            while (found := re.search(r"http://127\.0\.0\.1:\d+", said)) is None:
                line = running.stderr.readline()
                assert line, f"the server ended: {said}"
                said += line
            answer = httpx.post(f"{found[0]}/v1/embeddings", json={"input": ["ab", "ba"]}).json()
            vectors = [each["embedding"] for each in answer["data"]]
            np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
            assert (len(vectors[0]), answer["model"]) == (32, "bag")
            assert httpx.post(f"{found[0]}/v1/chat/completions", json={}).status_code == 404
        finally:
            running.terminate()
            running.communicate(timeout=60)


def test_two_embedding_models_are_one_too_many(shop: Path) -> None:
    running = start(shop, "serve", "-embed", "bag.gguf", "-model", "bag.gguf", "-addr", "127.0.0.1:0")
    _, error = running.communicate(timeout=60)
    assert running.returncode == 1 and "it is an embedding model, and -embed names one too" in error


def test_the_command_prints_tokens(shop: Path) -> None:
    assert golem(shop, "tokens", "toy.gguf", "ab") == "100\t<0x61>\n101\t<0x62>\n"


@pytest.fixture(scope="module")
def server(shop: Path) -> Iterator[str]:
    """The address of a server that was named no model, so that it opens the example's default."""
    running = start(shop, "serve", "-addr", "127.0.0.1:0", "-context", "64", GOLEM_MOTTO="in a hurry")
    try:
        assert running.stderr is not None
        said = ""
        while (found := re.search(r"http://127\.0\.0\.1:\d+", said)) is None:
            line = running.stderr.readline()
            assert line, f"the server ended: {said}"
            said += line
        yield found[0]
    finally:
        running.terminate()
        running.communicate(timeout=60)


def test_the_endpoint_answers_and_refuses(server: str) -> None:
    assert httpx.get(f"{server}/v1/count", params={"text": "counted"}).json() == {"tokens": 7}
    refused = httpx.get(f"{server}/v1/count")
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "text: there is nothing to count"
    assert refused.json()["error"]["param"] == "text"


def test_the_option_reaches_the_endpoint(server: str) -> None:
    assert httpx.get(f"{server}/motto").json() == {"motto": "in a hurry"}


def test_the_sampler_changes_what_is_drawn(server: str) -> None:
    def answer(**fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "xyzabc"}], "max_tokens": 8, **fields}
        return httpx.post(f"{server}/v1/chat/completions", json=body)

    assert answer().json()["choices"][0]["message"]["content"] == "defghijk"
    without = answer(lipogram="dg").json()["choices"][0]["message"]["content"]
    assert without and not set(without) & set("dg")
    assert answer(lipogram=7).status_code == 400
    assert answer(lipogram=7).json()["error"]["message"] == "lipogram: expected letters, got 7"


class Alphabet:
    vocab_size = 26

    def piece(self, token: int) -> bytes:
        return bytes([ord("a") + token])


def test_the_sampler_is_tested_without_a_model(shop: Path) -> None:
    stages = [*plugins.sampler_stages(), *module(shop, "golem_lipogram").golem_samplers()]
    logits = np.arange(26, dtype=np.float32)
    for extra, expected in (({}, "z"), ({"lipogram": "zy"}, "x")):
        context = SamplerContext(26, (), Alphabet())  # type: ignore[arg-type]
        chain = SamplerChain.build(stages, SamplingParams(temperature=0, extra=extra), context)
        assert chr(ord("a") + chain.draw(logits.copy())) == expected


def test_every_function_that_the_core_exports_is_told_of() -> None:
    text = TEXT + (ROOT / "README.md").read_text(encoding="utf-8")
    functions = {name for name in public_names() if name.islower()}
    assert functions and {name for name in functions if not re.search(rf"\b{name}\b", text)} == set()


def test_what_the_core_exports_says_in_help_what_it_does() -> None:
    silent: list[str] = []
    for name in public_names():
        exported = getattr(golem_core, name)
        members = vars(exported) if inspect.isclass(exported) else {"": exported}
        named = {key: getattr(each, "__func__", each) for key, each in members.items() if not key.startswith("_")}
        written = {key: each for key, each in named.items() if inspect.isfunction(each) or isinstance(each, property)}
        silent += [f"{name}.{key}" for key, each in written.items() if not (each.__doc__ or "<lambda>" in repr(each))]
    assert silent == []


def test_the_device_on_the_planner_has_a_step_for_every_op(shop: Path) -> None:
    of_core = {each.name for each in vars(ops).values() if isinstance(each, Op)}
    assert set(module(shop, "golem_planned").OPS) == of_core - {"view", "take"}


# ---------------------------------------------------------------- the architecture and the devices, by the numbers


def toy_by_hand(file: ModelFile, tokens: list[int]) -> np.ndarray:
    """The logits of every position, written down without the graph: float64, complex rotations, a mask."""
    w = {name: weight.dequantize().astype(np.float64) for name, weight in file.weights.items()}
    heads, n = 2, len(tokens)

    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    def turned(x: np.ndarray) -> np.ndarray:
        pairs = x[..., :16] + 1j * x[..., 16:]
        pairs = pairs * np.exp(1j * np.arange(n)[:, None, None] * 1e4 ** (-np.arange(16) / 16))
        return np.concatenate([pairs.real, pairs.imag], -1)

    x = w["token_embd.weight"][tokens]
    for block in range(2):
        q, k, v = ((norm(x) @ w[f"blk.{block}.attn_{name}.weight"].T).reshape(n, heads, 32) for name in "qkv")
        scores = np.einsum("qhd,khd->hqk", turned(q), turned(k)) / np.sqrt(32)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        seen = np.einsum("hqk,khd->qhd", shares / shares.sum(-1, keepdims=True), v).reshape(n, -1)
        x = x + seen @ w[f"blk.{block}.attn_output.weight"].T
    return norm(x) @ w["output.weight"].T


def opened(shop: Path, device: str) -> Any:
    return CpuDevice() if device == "cpu" else module(shop, f"golem_{device}").golem_devices()[0].open({})


@pytest.mark.parametrize("device", DEVICES)
def test_the_architecture_computes_what_its_page_says(shop: Path, device: str) -> None:
    """Two conversations in pieces: everything in one place would hide a mix-up of slots or positions."""
    with open_model(shop / "toy.gguf") as file:
        graph = module(shop, "golem_toy").open_toy(file).build()
        compiled = opened(shop, device).compile(graph, slots=2, context=32, width=12)
        one, two = [100, 120, 3, 77, 201], [44, 9, 250, 250, 17, 83, 66]
        feed = [
            ([*one[:3], *two[:5]], [*range(3), *range(5)], [0] * 3 + [1] * 5, [2, 7]),
            ([one[3], *two[5:]], [3, 5, 6], [0, 1, 1], [2]),
            ([one[4]], [4], [0], [0]),
        ]
        drawn = [compiled.run(Columns(*map(np.array, each)))["logits"].copy() for each in feed]
        wanted_one, wanted_two = toy_by_hand(file, one), toy_by_hand(file, two)
    near = 1e-3 if device == "cpu" else 2e-5  # the CPU keeps keys and values in 16 bits
    np.testing.assert_allclose(drawn[0], [wanted_one[2], wanted_two[4]], atol=near)
    np.testing.assert_allclose(drawn[1], [wanted_two[6]], atol=near)
    np.testing.assert_allclose(drawn[2], [wanted_one[4]], atol=near)


FIXTURES = sorted(
    path
    for package in PACKAGES
    for path in package.glob("tests/fixtures/*.gguf")
    if not path.name.startswith("mmproj")  # a projector is no model
)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_planned_device_runs_the_graphs_of_every_package(shop: Path, path: Path) -> None:
    with open_model(path) as file:
        build: Callable[[], Graph] = plugins.architecture(file.architecture).open(file).build
        compiled = opened(shop, "planned").compile(build(), context=32, width=16)
        reference = Reference(build(), context=32)
        for low, high in ((0, 11), (11, 12), (12, 19)):
            span = np.arange(low, high)
            columns = Columns(span % 7 + 5, span, np.zeros_like(span), np.array([high - low - 1]))
            got, wanted = compiled.run(columns), reference.run(columns)
            assert got.keys() == wanted.keys() == build().outputs.keys()
            for name, value in wanted.items():
                np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-4)


def test_an_op_of_one_s_own_is_computed_by_its_meaning_and_refused_by_name(shop: Path) -> None:
    clamp = module(shop, "golem_clamp").clamp
    with open_model(shop / "toy.gguf") as file:
        g = Graph()
        g.output("held", clamp(g, g.embed(file.weights.token_embd), low=-0.5, high=0.25))
        columns = Columns(np.array([7, 9]), np.arange(2), np.zeros(2), np.array([], np.int64))
        held = Reference(g).run(columns)["held"]
        np.testing.assert_array_equal(held, file.weights.token_embd.dequantize()[[7, 9]].clip(-0.5, 0.25))
        with pytest.raises(Unsupported) as refused:
            CpuDevice().compile(g)
    assert str(refused.value) in TEXT


@pytest.mark.parametrize("installed", ["", "toy"])
def test_the_test_of_the_architecture_passes(shop: Path, installed: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GOLEM_")}
    path = os.pathsep.join(filter(None, [str(shop), os.environ.get("PYTHONPATH")]))
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_toy.py"]
    settings = {"PYTHONPATH": path, "GOLEM_PLUGINS": installed}
    ran = subprocess.run(program, cwd=shop, env=environment | settings, capture_output=True, text=True)
    assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout


# ---------------------------------------------------------------- what the page says besides


def rows_under(title: str) -> list[list[str]]:
    """The rows of the table in the section of that title."""
    section = TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def written(op: Op[Any, Any]) -> str:
    """An op as the page writes it: its name and arguments, without the graph."""
    arguments: list[str] = []
    for parameter in list(op.signature.parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}".replace("'", '"')
        arguments.append(parameter.name + default)
    return f"`{op.name}({', '.join(arguments)})`"


def test_the_table_of_ops_is_the_vocabulary() -> None:
    vocabulary = {written(each): ", ".join(each.facts) for each in vars(ops).values() if isinstance(each, Op)}
    assert {row[0]: row[1] for row in rows_under("The ops of a graph")} == vocabulary


def test_the_table_of_hooks_is_hookspecs() -> None:
    specs = {
        f"`{name}{str(inspect.signature(function)).split(' ->')[0]}`"
        for name, function in vars(hookspecs).items()
        if name.startswith("golem_")
    }
    assert {row[0] for row in rows_under("The hooks")} == {re.sub(r": '.*?'(?=[,)])", "", spec) for spec in specs}


def test_the_places_of_the_standard_stages_are_those_of_the_code() -> None:
    for stage in sampling.STAGES:
        assert re.search(rf"\b{stage.name} (is )?{stage.position}\b", TEXT), (stage.name, stage.position)


def test_the_tokenizers_are_those_of_the_code() -> None:
    sentence = re.search(r"names how text is cut into words first: (.*?);", TEXT)
    assert sentence and re.findall("`(.*?)`", sentence[1]) == sorted(pretokenizers.SPLITTERS)
    with pytest.raises(Unsupported) as refused:
        tokenizer_from_metadata({"tokenizer.ggml.model": "none"})
    (known,) = re.findall(r"\((.*) are\)", str(refused.value))
    told = re.search(r"`tokenizer.ggml.model` names: (.*?)\. ", TEXT)
    assert told and re.findall("`(.*?)`", told[1]) == known.split(", ")


def test_the_exceptions_are_those_that_the_core_exports() -> None:
    exported = {name for name in public_names() if inspect.isclass(getattr(golem_core, name))}
    exported = {name for name in exported if issubclass(getattr(golem_core, name), Exception)}
    assert {row[0].strip("`") for row in rows_under("Errors")} == exported


def test_links_lead_somewhere() -> None:
    for path in (PAGE, ROOT / "README.md"):
        text = path.read_text(encoding="utf-8")
        titles = {
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)", text, re.M)
        }
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith("#"):
                assert target[1:] in titles, f"{path.name}: {target}"
            elif not target.startswith("http"):
                assert (path.parent / target.partition("#")[0]).exists(), f"{path.name}: {target}"
