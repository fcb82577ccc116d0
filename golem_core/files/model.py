"""Opens a model: a GGUF file, a split one, or a directory with config.json and safetensors.

A path comes in; a `ModelFile` with the architecture's name, the metadata and the weights comes out.  Nothing here
knows what an architecture does with them.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import TracebackType

from golem_core.errors import BadFile

from .gguf import MAGIC, peek, read_gguf
from .mapped import Contents, is_file
from .metadata import Metadata
from .weights import Weights


class ModelFile:
    """An open model: `path`, `name`, `architecture`, `metadata` and `weights`.

    `close()` gives the memory maps back; a `Weight` that somebody still holds stays readable and keeps its file
    mapped until it goes.
    """

    def __init__(self, path: Path, architecture: str, contents: Contents):
        self.path = path
        self.architecture = architecture
        self.metadata: Metadata = contents.metadata
        self.weights = Weights(path, contents.tensors)
        self._contents = contents

    @property
    def name(self) -> str:
        """The base name of the file without .gguf, or the directory's name."""
        name = self.path.name
        return name[: -len(".gguf")] if name.lower().endswith(".gguf") else name

    def close(self) -> None:
        """Lets go of the files.  A weight that somebody holds stays readable."""
        self._contents.close()

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ModelFile {self.path}: {self.architecture}, {len(self.weights)} tensors>"


def open_model(path: str | PathLike[str]) -> ModelFile:
    """Opens a GGUF file, a split GGUF by any of its parts, or a directory with config.json and safetensors.

    The architecture is `general.architecture`, or of a directory the first of config.json's `architectures` or its
    `model_type`.  Raises BadFile naming the file and what is wrong with it or what was expected.
    """
    path = Path(path)
    try:
        is_directory = path.is_dir()
        if not is_directory:
            _check_magic(path)
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error
    if is_directory:
        from .safetensors import read_directory

        contents, architecture = read_directory(path), _directory_architecture
        expected = "architectures or model_type in config.json"
    else:
        contents, architecture = read_gguf(path), _gguf_architecture
        expected = "general.architecture"
    try:
        name = architecture(contents.metadata)
        if not isinstance(name, str) or not name:
            raise BadFile(f"{path}: it does not name its architecture: expected {expected}")
    except BadFile:
        contents.close()
        raise
    return ModelFile(path, name, contents)


def architecture_of(path: str | PathLike[str]) -> str:
    """The architecture of the model that `open_model` opens; of a GGUF file no more is read than that takes."""
    path = Path(path)
    named = peek(path, "general.architecture") if is_file(path) else None  # only the first part of a split names it
    if isinstance(named, str) and named:
        return named
    with open_model(path) as file:
        return file.architecture


def open_safetensors(path: str | PathLike[str], architecture: str) -> ModelFile:
    """Opens one safetensors file as a model of `architecture`, for directories laid out in a way of their own.

    Its metadata are the header's texts.  Raises BadFile naming the file and what is wrong with it.
    """
    from .safetensors import read_safetensors

    return ModelFile(Path(path), architecture, read_safetensors(Path(path)))


def _gguf_architecture(metadata: Metadata) -> object:
    return metadata.get("general.architecture")


def _directory_architecture(config: Metadata) -> object:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names else config.get("model_type")


def _check_magic(path: Path) -> None:
    """Tells what was expected, for a path that is no GGUF file at all."""
    expected = "expected a GGUF file, or a directory with config.json and safetensors"
    if not path.exists():
        raise BadFile(f"{path}: there is no such file; {expected}")
    if not path.is_file():
        raise BadFile(f"{path}: not a regular file; {expected}")
    with path.open("rb") as file:
        start = file.read(16)
    if start[:4] == MAGIC:
        return
    if start[8:9] == b"{":
        raise BadFile(f"{path}: a safetensors file; give the directory that holds it and its config.json")
    raise BadFile(f"{path}: not a model: it begins with {start[:4]!r}; {expected}")
