"""The hooks: a file opens through its record, with the marks and the ends of its conversations."""

from __future__ import annotations

import pytest
from golem_qwen import opening, plugin

from golem_core import ChatModel


def test_a_file_opens_through_the_architecture_record(model):
    records = {each: record for record in plugin.golem_architectures() for each in record.names}
    record = records[model.file.architecture]
    assert record.role is ChatModel
    opened = record.open(model.file)
    assert (opened.name, opened.vocab_size, opened.context_train) == (model.name, 304, 1024)
    assert opened.template is None and opened.fallback_template
    assert opened.build().outputs["logits"].shape == (304,)


def test_turns_end_a_generation_and_nothing_stands_before_a_prompt(model):
    (record,) = [each for each in plugin.golem_architectures() if model.file.architecture in each.names]
    tokenizer = record.open(model.file).tokenizer
    assert {tokenizer.token_text(id) for id in tokenizer.eog} == {"<|im_end|>", "<|endoftext|>"}
    ids = tokenizer.encode("<|im_start|>the<think>", add_special=True, parse_special=True)
    assert [tokenizer.token_text(id) for id in ids] == ["<|im_start|>", "the", "<think>"]
    assert tokenizer.decode(ids) == "the<think>"


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "now", "arguments": {"tz": "Europe/Paris", "n": 3}}',
        "<function=now>\n<parameter=tz>\nEurope/Paris\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>",
    ],
)
def test_calls_are_read_in_either_syntax(call):
    (syntax,) = [each for each in opening.MARKERS.syntaxes if call.startswith(each.begin)]
    made, end = syntax.read(call, 0, {})
    assert (made.name, made.arguments, end) == ("now", {"tz": "Europe/Paris", "n": 3}, len(call))
