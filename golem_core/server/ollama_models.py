"""What ollama's clients ask about models: GET /api/version, GET /api/tags, GET /api/ps and POST /api/show."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.exceptions import NotFoundException
from msgspec import Meta

from golem_core.errors import BadRequest
from golem_core.server.bodies import read_body
from golem_core.server.embedding import embedder_of
from golem_core.server.openapi import described

if TYPE_CHECKING:
    from golem_core.files import ModelFile, Weight
    from golem_core.server.app import Server
    from golem_core.server.loading import LoadedChat

__all__ = ["handlers"]

_NEVER = "9999-12-31T23:59:59Z"
_LONGEST_LIST = 16
_VOCABULARY = {  # slow to read
    f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type", "merges", "precompiled_charsmap")
}

_STORED = {  # general.file_type, as the GGUF format numbers mixtures of types
    number: name
    for start, names in (
        (0, "F32 F16 Q4_0 Q4_1"),
        (7, "Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS"),
        (23, "IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16"),
        (36, "TQ1_0 TQ2_0 MXFP4_MOE NVFP4 Q1_0"),
    )
    for number, name in enumerate(names.split(), start)
}


@dataclass(frozen=True)
class _Held:
    """A loaded model: its name, its file, its device, and the positions of a conversation or a text."""

    name: str
    file: ModelFile
    device: str
    context: int


class Version(msgspec.Struct):
    """The version of the program."""

    version: Annotated[str, Meta(description="The version of golem.")]


class Details(msgspec.Struct):
    """What kind of model it is."""

    parent_model: Annotated[str, Meta(description="Always empty: models are files here.")]
    format: Annotated[str, Meta(description='"gguf" or "safetensors".')]
    family: Annotated[str, Meta(description="The architecture.")]
    families: Annotated[list[str], Meta(description="The architecture.")]
    parameter_size: Annotated[str, Meta(description='How many weights, such as "268.1M".')]
    quantization_level: Annotated[str, Meta(description='How most of them are stored, such as "Q4_K_M".')]


class Tag(msgspec.Struct):
    """A model that is here."""

    name: Annotated[str, Meta(description="Its name.")]
    model: Annotated[str, Meta(description="Its name.")]
    modified_at: Annotated[str, Meta(description="When its file was last written.")]
    size: Annotated[int, Meta(description="Bytes of its weights.")]
    digest: Annotated[str, Meta(description="Another one when the file is another one; no hash of its contents.")]
    details: Annotated[Details, Meta(description="What kind of model it is.")]


class Tags(msgspec.Struct):
    """The models that are here."""

    models: Annotated[list[Tag], Meta(description="One entry for each model.")]


class Running(Tag):
    """A model that is loaded."""

    expires_at: Annotated[str, Meta(description="When it goes: never, which is written as the last of all dates.")]
    size_vram: Annotated[int, Meta(description="Bytes of its weights on a device other than the processor.")]
    context_length: Annotated[int, Meta(description="Positions that a conversation, or a text, may have.")]


class RunningModels(msgspec.Struct):
    """The models that are loaded."""

    models: Annotated[list[Running], Meta(description="One entry for each model.")]


class ShowRequest(msgspec.Struct):
    """Which model is meant."""

    model: Annotated[str | None, Meta(description="Its name.")] = None
    name: Annotated[str | None, Meta(description="Its name, as older clients send it.")] = None
    verbose: Annotated[bool | None, Meta(description="Tell long lists of the file too.")] = None


class Shown(msgspec.Struct):
    """All about a model."""

    license: Annotated[str, Meta(description="What the file says of its licence.")]
    modelfile: Annotated[str, Meta(description="Always empty: models are files here.")]
    parameters: Annotated[str, Meta(description="How it is sampled unless a request says otherwise.")]
    template: Annotated[str, Meta(description="Jinja source of its chat template; empty without one.")]
    details: Annotated[Details, Meta(description="What kind of model it is.")]
    model_info: Annotated[
        dict[str, Any], Meta(description="The file's metadata; long lists are null unless asked for.")
    ]
    capabilities: Annotated[list[str], Meta(description='"completion", "tools", "thinking", "vision"; or "embedding".')]
    modified_at: Annotated[str, Meta(description="When its file was last written.")]


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need nothing to be loaded."""

    @cache
    def held() -> Mapping[str, _Held]:
        """What is loaded, by name: the conversation model before an embedding model, and in its place where both have
        one name."""
        found = []
        if server.chat is not None:
            found.append(_Held(server.name, server.chat.model.file, server.chat.device, server.chat.slot_context))
        if (embedder := embedder_of(server)) is not None:
            model = embedder.loaded.model
            found.append(_Held(embedder.name, model.file, embedder.device, model.limit))
        named: dict[str, _Held] = {}
        for each in found:
            named.setdefault(each.name, each)
        return named

    @cache
    def tag(name: str) -> Mapping[str, Any]:
        return _tag(name, held()[name].file)

    @get("/api/version", sync_to_thread=False, **described(answer=Version))
    def ollama_version() -> Version:
        """The version of the program."""
        from golem_core.plugins import version

        return Version(version())

    @get("/api/tags", sync_to_thread=True, **described(answer=Tags))
    def ollama_tags() -> Tags:
        """The models that are here."""
        return Tags([Tag(**tag(name)) for name in held()])

    @get("/api/ps", sync_to_thread=True, **described(answer=RunningModels))
    def ollama_ps() -> RunningModels:
        """The models that are loaded."""
        return RunningModels([running(each) for each in held().values()])

    def running(model: _Held) -> Running:
        fields = dict(tag(model.name))
        away = 0 if model.device == "cpu" else fields["size"]
        return Running(**fields, expires_at=_NEVER, size_vram=away, context_length=model.context)

    @post("/api/show", status_code=200, **described(body=ShowRequest, answer=Shown))
    async def ollama_show(request: Request) -> Shown:
        """All about a model."""
        return await asyncio.to_thread(shown, await request.body())

    def shown(body: bytes) -> Shown:
        asking, _ = read_body(body, ShowRequest)
        asked = asking.model or asking.name
        if not asked:
            raise BadRequest("model: no model is named", param="model")
        name, verbose = asked.removesuffix(":latest"), bool(asking.verbose)
        if name not in held():
            names = " and ".join(map(repr, held())) or repr(server.name)
            raise NotFoundException(f"the model {asked!r} is not here; this server holds {names}")
        if server.chat is not None and name == server.name:
            return _shown_chat(server.chat, tag(name), verbose=verbose)
        return _shown(held()[name].file, tag(name), ["embedding"], verbose=verbose)

    return [ollama_version, ollama_tags, ollama_ps, ollama_show]


def _tag(name: str, file: ModelFile) -> Mapping[str, Any]:
    path = Path(file.path)
    written = path.stat().st_mtime_ns
    weights = _weights(file)
    size = sum(weight.nbytes for weight in weights)
    return {
        "name": name,
        "model": name,
        "modified_at": datetime.fromtimestamp(written / 1e9, UTC).isoformat().replace("+00:00", "Z"),
        "size": size,
        "digest": hashlib.sha256(f"{path.resolve()} {written} {size}".encode()).hexdigest(),
        "details": Details(
            parent_model="",
            format="safetensors" if path.is_dir() else "gguf",
            family=file.architecture,
            families=[file.architecture],
            parameter_size=_in_short(_count(weights)),
            quantization_level=_stored(file),
        ),
    }


def _in_short(count: int) -> str:
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)


def _stored(file: ModelFile) -> str:
    """How the file says that its weights are stored, or how most bytes of them are."""
    kind = file.metadata.get("general.file_type")
    if isinstance(kind, int) and kind in _STORED:
        return _STORED[kind]
    stored: Counter[str] = Counter()
    for weight in _weights(file):
        stored[weight.type] += weight.nbytes
    return stored.most_common(1)[0][0] if stored else "unknown"


def _shown_chat(chat: LoadedChat, tag: Mapping[str, Any], *, verbose: bool) -> Shown:
    preset, template = chat.model.sampling, chat.template
    capabilities = ["completion"]
    if template is not None and chat.model.markers.call is not None and template.takes("tools"):
        capabilities.append("tools")
    if template is not None and template.takes("enable_thinking"):
        capabilities.append("thinking")
    if chat.takes("image"):
        capabilities.append("vision")
    shown = _shown(chat.model.file, tag, capabilities, verbose=verbose)
    shown.template = "" if template is None else template.source
    values = [f"{name} {getattr(preset, name)}" for name in ("temperature", "top_k", "top_p", "min_p")]
    shown.parameters = "\n".join(values)
    return shown


def _shown(file: ModelFile, tag: Mapping[str, Any], capabilities: list[str], *, verbose: bool) -> Shown:
    metadata = file.metadata
    licence = metadata.get("general.license")
    return Shown(
        license=licence if isinstance(licence, str) else "",
        modelfile="",
        parameters="",
        template="",
        details=tag["details"],
        model_info={"general.parameter_count": _count(_weights(file))}
        | {key: _told(metadata, key, verbose) for key in metadata},
        capabilities=capabilities,
        modified_at=tag["modified_at"],
    )


def _weights(file: ModelFile) -> list[Weight]:
    return [weight for name in file.weights if (weight := file.weights.get(name)) is not None]


def _count(weights: list[Weight]) -> int:
    return sum(prod(weight.shape) for weight in weights)


def _told(metadata: Mapping[str, Any], key: str, verbose: bool) -> Any:
    if key in _VOCABULARY and not verbose:
        return None
    value = metadata[key]
    if isinstance(value, list):
        if len(value) > _LONGEST_LIST and not verbose:
            return None
        return [each.encode("utf-8", "replace").decode() if isinstance(each, str) else each for each in value]
    return value
