"""The same networks out of the same files in PyTorch: diffusers' transformer and decoder, transformers' encoder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import numpy as np
import torch
from golem_krea2.checkpoint import Files
from golem_krea2.names import diffusers_name
from golem_krea2.shapes import DiTShape, EncoderShape, VaeShape
from golem_krea2.tensors import Tensors
from golem_krea2.vae import unscaled

DECODER = (
    ("decoder.conv1", "decoder.conv_in"), ("conv2.", "post_quant_conv."), ("middle.0", "mid_block.resnets.0"),
    ("middle.1", "mid_block.attentions.0"), ("middle.2", "mid_block.resnets.1"), ("head.0", "norm_out"),
    ("head.2", "conv_out"), ("residual.0", "norm1"), ("residual.2", "conv1"), ("residual.3", "norm2"),
    ("residual.6", "conv2"), ("shortcut", "conv_shortcut"),
)  # fmt: skip
TYPES = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F16": torch.float16, "F32": torch.float32}


def loaded(tensors: Tensors, name: str, device: str, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of a file on the device, times its scale."""
    weight = tensors[name]
    with warnings.catch_warnings(action="ignore"):  # the map is for reading, and is only read
        stored = torch.frombuffer(weight.data, dtype=torch.uint8)
    values = stored.to(device).view(TYPES[weight.type]).to(dtype).reshape(weight.shape)
    return values if weight.scale == 1 else values * weight.scale


def filled(
    make: Callable[[], torch.nn.Module],
    tensors: Tensors,
    names: dict[str, str],
    device: str,
    dtype: torch.dtype,
    single: Callable[[str], bool] = lambda name: False,
) -> torch.nn.Module:
    """The module that `make` makes, its parameters those of a file: `names` has the file's by the module's.

    Parameters that `single` picks are float32, the others `dtype`; what the file lacks is left out.
    """
    with torch.device("meta"):
        model = make()
    state = {}
    for name, parameter in model.state_dict().items():
        kind = torch.float32 if single(name) else dtype
        if name in names:
            state[name] = loaded(tensors, names[name], device, kind).reshape(parameter.shape)
        else:
            state[name] = torch.zeros(parameter.shape, dtype=kind, device=device)
    model.load_state_dict(state, assign=True)
    return model.eval()


class Transformer:
    """Krea2Transformer2DModel; norms in float32, as diffusers keeps them."""

    def __init__(self, files: Files, device: str, dtype: torch.dtype):
        from diffusers import Krea2Transformer2DModel

        shape: DiTShape = files.dit_shape
        self.device, self.dtype = device, dtype

        def make() -> torch.nn.Module:
            return Krea2Transformer2DModel(
                in_channels=4 * shape.channels,
                num_layers=shape.blocks,
                attention_head_dim=shape.main.dim,
                num_attention_heads=shape.main.count,
                num_key_value_heads=shape.main.kv,
                intermediate_size=shape.main.ffn,
                timestep_embed_dim=shape.time,
                text_hidden_dim=shape.text.width,
                num_text_layers=shape.taps,
                text_num_attention_heads=shape.text.count,
                text_num_key_value_heads=shape.text.kv,
                text_intermediate_size=shape.text.ffn,
                axes_dims_rope=shape.axes,
            )

        names = {diffusers_name(spec.name): spec.name for spec in shape.tensors()}
        is_norm = lambda name: name.split(".")[-2].startswith("norm")
        self.model = filled(make, files.dit, names, device, dtype, is_norm)
        assert set(names) == set(self.model.state_dict())

    @torch.no_grad()
    def fold(self, pairs: Iterable[tuple[str, np.ndarray, np.ndarray, float]]) -> None:
        """Adds factor * B A to the weight of each target, a product of ours."""
        weights = self.model.state_dict()
        for target, a, b, factor in pairs:
            down, up = (torch.from_numpy(each).to(self.device, torch.float32) for each in (a, b))
            weights[diffusers_name(f"{target}.weight")] += (factor * (up @ down)).to(self.dtype)

    @torch.no_grad()
    def velocity(self, z: np.ndarray, sigma: float, c: np.ndarray) -> np.ndarray:
        channels, h, w = z.shape
        rows = torch.from_numpy(z).reshape(channels, h // 2, 2, w // 2, 2).permute(1, 3, 0, 2, 4)
        rows = rows.reshape(1, -1, 4 * channels).to(self.device, self.dtype)
        at = torch.zeros(len(c) + rows.shape[1], 3, device=self.device)
        at[len(c) :, 1:] = torch.cartesian_prod(torch.arange(h // 2), torch.arange(w // 2)).to(self.device)
        conditioning = torch.from_numpy(c)[None].to(self.device, self.dtype)
        time = torch.tensor([sigma], device=self.device)
        v = self.model(rows, conditioning, time, at, return_dict=False)[0].float().cpu()
        return v.reshape(h // 2, w // 2, channels, 2, 2).permute(2, 0, 3, 1, 4).reshape(channels, h, w).numpy()


class Encoder:
    """Qwen3VLTextModel without its last norm, as far as the last tap."""

    def __init__(self, files: Files, device: str, dtype: torch.dtype):
        from transformers import Qwen3VLTextConfig, Qwen3VLTextModel

        shape: EncoderShape = files.encoder_shape
        self.device, self.taps = device, files.taps
        config = Qwen3VLTextConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            intermediate_size=shape.ffn,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv,
            head_dim=shape.dim,
            rms_norm_eps=1e-6,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 5_000_000.0,
                "mrope_section": [shape.dim // 2 - 2 * (shape.dim * 5 // 32), *[shape.dim * 5 // 32] * 2],
                "mrope_interleaved": True,
            },
            pad_token_id=None,
            attn_implementation="sdpa",
        )

        def make() -> torch.nn.Module:
            model = Qwen3VLTextModel(config)
            model.norm = torch.nn.Identity()  # type: ignore[assignment]
            return model

        names = {spec.name: spec.name for spec in shape.tensors()}
        self.model = filled(make, files.encoder, names, device, dtype)
        with torch.device(device):  # its frequencies are no parameters, and were made without memory
            self.model.rotary_emb = type(self.model.rotary_emb)(config)

    @torch.no_grad()
    def encode(self, ids: list[int], start: int) -> np.ndarray:
        given = torch.tensor(ids, device=self.device)[None]
        states = self.model(given, output_hidden_states=True, use_cache=False).hidden_states
        return torch.stack([states[k][0, start:] for k in self.taps], 1).float().cpu().numpy()


class Decoder:
    """AutoencoderKLQwenImage, of which only the decoder is filled."""

    def __init__(self, files: Files, device: str, dtype: torch.dtype):
        from diffusers import AutoencoderKLQwenImage

        shape: VaeShape = files.vae_shape
        self.device, self.dtype = device, dtype
        names = {}
        for spec in shape.tensors():
            theirs = spec.name
            for i in range(15):
                level, place = divmod(i, 4)
                part = "upsamplers.0" if place == 3 else f"resnets.{place}"
                theirs = theirs.replace(f"upsamples.{i}.", f"up_blocks.{level}.{part}.")
            for ours, other in DECODER:
                theirs = theirs.replace(ours, other)
            names[theirs] = spec.name
        self.model = filled(lambda: AutoencoderKLQwenImage(base_dim=shape.base), files.vae, names, device, dtype)
        assert set(names) <= set(self.model.state_dict())

    @torch.no_grad()
    def decode(self, z: np.ndarray) -> np.ndarray:
        """float32 (8 h, 8 w, 3), held between -1 and 1."""
        given = torch.from_numpy(unscaled(z))[None, :, None].to(self.device, self.dtype)
        return self.model.decode(given, return_dict=False)[0][0, :, 0].permute(1, 2, 0).float().cpu().numpy()
