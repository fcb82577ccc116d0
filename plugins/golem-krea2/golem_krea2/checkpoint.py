"""ComfyUI's directory with the three networks and the tokenizer: found, opened, and checked against each other.

Nothing but headers and the tokenizer is read here; the weights stay in the mapped files until a device takes them.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from golem_core import BadFile
from golem_krea2.shapes import DiTShape, EncoderShape, VaeShape
from golem_krea2.tensors import Tensors
from golem_krea2.tokens import Tokens

DIT = "models/unet/krea2_turbo_fp8.safetensors"
ENCODER = "models/text_encoders/qwen3vl_4b_fp8_scaled.safetensors"
VAE = "models/vae/qwen_image_vae.safetensors"
TOKENIZER = "comfy/text_encoders/qwen25_tokenizer"
LORAS = "models/loras"
PREFIXES = ("model.diffusion_model.", "diffusion_model.", "")
"""What may stand before the names of the DiT's tensors."""

EXPECTED = "; a ComfyUI directory with Krea 2 was expected"


@dataclass(frozen=True)
class Files:
    """Everything of one directory.  `close` lets go of the mapped weights.

    `loras` is the folder of the LoRAs that a request may name, which need not be there.
    """

    dit: Tensors
    encoder: Tensors
    vae: Tensors
    tokens: Tokens
    loras: Path
    dit_shape: DiTShape
    encoder_shape: EncoderShape
    vae_shape: VaeShape

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        encoder: str | Path | None = None,
        dit: str | Path | None = None,
        vae: str | Path | None = None,
        tokenizer: str | Path | None = None,
        loras: str | Path | None = None,
    ) -> Files:
        """The files under `directory`, each of which another path may replace.

        Raises BadFile or Unsupported naming the file, and the tensor at fault.
        """
        directory = Path(directory)
        named = {DIT: dit, ENCODER: encoder, VAE: vae, TOKENIZER: tokenizer}
        _check_directory(directory, [name for name, path in named.items() if path is None])
        tokens = Tokens(Path(tokenizer or directory / TOKENIZER))
        with ExitStack() as opened:

            def open(path: str | Path, prefixes: tuple[str, ...], known: str = "") -> Tensors:
                return opened.enter_context(closing(Tensors(Path(path), prefixes, known)))

            files = cls._checked(
                open(dit or directory / DIT, PREFIXES, "first.weight"),
                open(encoder or directory / ENCODER, ("model.",)),
                open(vae or directory / VAE, ("",)),
                tokens,
                Path(loras or directory / LORAS),
            )
            opened.pop_all()
        return files

    @classmethod
    def _checked(cls, dit: Tensors, encoder: Tensors, vae: Tensors, tokens: Tokens, loras: Path) -> Files:
        dit_shape = DiTShape.read(dit)
        dit.check(dit_shape.tensors)
        encoder_shape = EncoderShape.read(encoder, tapped(dit_shape.taps)[-1])
        encoder.check(encoder_shape.tensors)
        vae_shape = VaeShape.read(vae)
        vae.check(vae_shape.tensors)
        if encoder_shape.width != dit_shape.text.width:
            raise BadFile(
                f"{encoder.path}: the encoder is {encoder_shape.width} wide, and {dit.path} takes rows of "
                f"{dit_shape.text.width}"
            )
        if vae_shape.latent != dit_shape.channels:
            raise BadFile(
                f"{vae.path}: the decoder takes {vae_shape.latent} channels, and {dit.path} gives {dit_shape.channels}"
            )
        if tokens.size > encoder_shape.vocabulary:
            raise BadFile(
                f"{encoder.path}: the encoder knows {encoder_shape.vocabulary} tokens, and the tokenizer has "
                f"{tokens.size}"
            )
        return cls(dit, encoder, vae, tokens, loras, dit_shape, encoder_shape, vae_shape)

    @property
    def name(self) -> str:
        """The DiT's file without its ending."""
        return self.dit.path.stem

    @property
    def taps(self) -> tuple[int, ...]:
        """The layers of the encoder whose entering stream the DiT reads: 2, 5, ... 35."""
        return tapped(self.dit_shape.taps)

    def close(self) -> None:
        for each in (self.dit, self.encoder, self.vae):
            each.close()


def _check_directory(directory: Path, needed: list[str]) -> None:
    """Raises BadFile where `directory` is none, or none of ComfyUI's: with nothing of what is `needed` of it."""
    if not directory.is_dir():
        raise BadFile(f"{directory}: {'this is a file' if directory.exists() else 'there is no such folder'}{EXPECTED}")
    if needed and not any((directory / name).exists() for name in needed):
        raise BadFile(f"{directory}: there is no {' and no '.join(needed)} in it{EXPECTED}")


def tapped(count: int) -> tuple[int, ...]:
    return tuple(2 + 3 * i for i in range(count))
