"""What diffusers calls the tensors of the DiT, for LoRAs that were trained with it."""

from __future__ import annotations

PAIRS = (
    ("txtmlp.0.scale", "txt_in.norm.weight"), ("txtmlp.1", "txt_in.linear_1"), ("txtmlp.3", "txt_in.linear_2"),
    ("first.", "img_in."), ("tmlp.0", "time_embed.linear_1"), ("tmlp.2", "time_embed.linear_2"),
    ("tproj.1", "time_mod_proj"), ("last.norm.scale", "final_layer.norm.weight"), ("last.linear", "final_layer.linear"),
    ("last.modulation.lin", "final_layer.scale_shift_table"), ("blocks.", "transformer_blocks."),
    ("txtfusion.layerwise_transformer_", "text_fusion.layerwise_"), ("txtfusion.", "text_fusion."),
    ("refiner_transformer_", "refiner_"), ("mod.lin", "scale_shift_table"), ("prenorm.scale", "norm1.weight"),
    ("postnorm.scale", "norm2.weight"), ("attn.qknorm.qnorm.scale", "attn.norm_q.weight"),
    ("attn.qknorm.knorm.scale", "attn.norm_k.weight"), ("attn.wq", "attn.to_q"), ("attn.wk", "attn.to_k"),
    ("attn.wv", "attn.to_v"), ("attn.gate", "attn.to_gate"), ("attn.wo", "attn.to_out.0"), (".mlp.", ".ff."),
)  # fmt: skip
"""Each part of a name and diffusers' part in its place, one after another."""


def diffusers_name(name: str) -> str:
    """The name in `Krea2Transformer2DModel` of a tensor of the DiT's file."""
    for part, theirs in PAIRS:
        name = name.replace(part, theirs)
    return name
