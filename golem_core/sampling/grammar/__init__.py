"""Answers that follow a grammar: GBNF or a JSON schema is read, compiled for a vocabulary, and held while drawing.

`compile_gbnf` and `compile_schema` take what a request says; a `Constraint` with the result goes into SamplingParams.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from golem_core.errors import BadRequest
from golem_core.sampling.grammar.stage import STAGE, Constraint, Thought

if TYPE_CHECKING:
    from golem_core.sampling.grammar.gbnf import parse_gbnf
    from golem_core.sampling.grammar.masks import CompiledGrammar, GrammarMatcher
    from golem_core.sampling.grammar.schema import parse_schema
    from golem_core.text import Tokenizer
else:
    from golem_core.lazy import exporter

    __getattr__ = exporter(
        __name__,
        {
            "golem_core.sampling.grammar.gbnf": "parse_gbnf",
            "golem_core.sampling.grammar.masks": "CompiledGrammar GrammarMatcher",
            "golem_core.sampling.grammar.schema": "parse_schema",
        },
    )

__all__ = [
    "STAGE",
    "CompiledGrammar",
    "Constraint",
    "GrammarMatcher",
    "Thought",
    "compile_gbnf",
    "compile_schema",
    "parse_gbnf",
    "parse_schema",
]


def compile_gbnf(tokenizer: Tokenizer, text: str, *, param: str = "grammar") -> CompiledGrammar:
    """Compile GBNF; the first use of a tokenizer takes seconds.  Raises BadRequest, with `param`, naming the place."""
    from golem_core.sampling.grammar import gbnf, masks

    return masks.vocabulary_of(tokenizer).compiled("gbnf", text, lambda: gbnf.parse_gbnf(text), param=param)


def compile_schema(tokenizer: Tokenizer, schema: Any, *, param: str = "json_schema") -> CompiledGrammar:
    """Compile a JSON schema (a dict or a bool), as `compile_gbnf` does.

    Raises BadRequest, with `param`, naming the keyword and its path for what a grammar can't follow.
    """
    from golem_core.sampling.grammar import masks
    from golem_core.sampling.grammar import schema as schemas

    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"{param}: the schema is not JSON: {error}", param=param) from None
    read = lambda: schemas.parse_schema(schema, param=param)
    return masks.vocabulary_of(tokenizer).compiled("schema", text, read, param=param)
