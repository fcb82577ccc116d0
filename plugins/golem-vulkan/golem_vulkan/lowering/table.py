"""The table of a target: plain emitters for every op, and the fusions that are tried first."""

from __future__ import annotations

from functools import partial

from golem_core import Lowering
from golem_vulkan.lowering import (
    attention,
    entrywise,
    forms,
    matrices,
    norms,
    pictures,
    products,
    recurrence,
    rotation,
    wide_fusions,
)
from golem_vulkan.target import Target

PLAIN = {
    "add": entrywise.binary,
    "attend": attention.attend,
    "attend_columns": attention.attend_columns,
    "causal_conv1d": recurrence.causal_conv1d,
    "clip": entrywise.unary,
    "combine": products.combine,
    "concat": entrywise.concat,
    "conv1d": products.conv1d,
    "conv2d": pictures.conv2d,
    "delta_net": recurrence.delta_net,
    "elu": entrywise.unary,
    "embed": products.embed,
    "embed_position": products.embed_position,
    "expert_linear": products.expert_linear,
    "gelu": entrywise.unary,
    "hadamard": entrywise.hadamard,
    "input": entrywise.input_,
    "l2_norm": norms.norm,
    "layer_norm": norms.norm,
    "linear": products.linear,
    "lookup": products.lookup,
    "mul": entrywise.binary,
    "pool": entrywise.pool,
    "prepend": recurrence.prepend,
    "relu": entrywise.unary,
    "rms_norm": norms.norm,
    "rope": attention.rope,
    "rope_at": rotation.rope_at,
    "route": products.route,
    "scale": entrywise.unary,
    "sigmoid": entrywise.unary,
    "silu": entrywise.unary,
    "slice": entrywise.slice_,
    "softcap": entrywise.unary,
    "softplus": entrywise.unary,
    "store": attention.store,
    "table_rows": products.table_rows,
    "transpose": entrywise.transpose,
    "upsample": pictures.upsample,
}


def table(target: Target) -> Lowering:
    return Lowering(
        plain={name: partial(emit, target) for name, emit in PLAIN.items()},
        fusions=(
            *norms.fusions(target),
            *products.fusions(target),
            *matrices.fusions(target),
            *wide_fusions.fusions(target),
            entrywise.GATED,
            entrywise.ACTIVATED,
            *attention.fusions(target),
            *rotation.fusions(target),
        ),
        form=partial(forms.form, target),
        stride=forms.stride,
        convert=forms.convert,
        gather=forms.gather,
        runs=True,
    )
