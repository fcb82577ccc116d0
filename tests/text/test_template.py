"""Chat templates render as transformers' environment renders them, and a hostile one is stopped."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import cast

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from golem_core.errors import BadFile, BadRequest
from golem_core.files import Metadata
from golem_core.text import ChatTemplate, Tokenizer, sandbox

USER = [{"role": "user", "content": "hi"}]


def render(source: str, messages=USER, **kwargs) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, **kwargs)


def test_a_conversation_is_rendered_with_its_marks():
    source = """{{ bos_token }}
{%- for message in messages %}
    <{{ message.role }}>{{ message['content'] | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}
<assistant>
{%- endif %}"""
    messages = [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "yes"}]
    assert render(source, messages) == "<s>    <user>hi</s>\n    <assistant>yes</s>\n<assistant>"
    assert render(source, messages, add_generation_prompt=False) == "<s>    <user>hi</s>\n    <assistant>yes</s>\n"


def test_no_tools_are_none():
    assert render("{{ tools is none }}", tools=[]) == render("{{ tools is none }}") == "True"


def test_conversations_with_tools_are_written_by_the_template_that_a_file_has_for_them():
    facts = {
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "tokenizer.chat_template.tool_use": "{{ bos_token }}{{ tools[0] }} {{ messages[0].content }}{{ tone }}",
        "tokenizer.chat_template.rag": "{{ documents }}",
    }
    tokenizer = cast(Tokenizer, SimpleNamespace(bos=0, eos=None, token_text=["<s>"].__getitem__))
    template = ChatTemplate.read(Metadata("file", facts), tokenizer)
    assert template is not None and template.takes("tools") and not template.takes("documents")
    assert template.render(USER) == template.render(USER, tools=[]) == "<s>hi"
    assert template.render(USER, tools=[{"f": 1}], tone="!") == "<s>{'f': 1} hi!"
    del facts["tokenizer.chat_template.tool_use"]
    template = ChatTemplate.read(Metadata("file", facts), tokenizer)
    assert template is not None and not template.takes("tools")


def test_further_variables_reach_the_template():
    assert render("{{ enable_thinking }}{{ missing is defined }}", enable_thinking=False) == "FalseFalse"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'a, b'.split(',')[1].strip().upper() }}", "B"),
        ("{{ 'think'.startswith('th') and 'x'.endswith('x') }}", "True"),
        ("{% for k, v in {'a': 1}.items() %}{{ k ~ '=' ~ v }}{% endfor %}", "a=1"),
        ("{% set ns = namespace(n=1) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "4"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% for i in range(4) if i != 1 %}{{ loop.index0 }}{{ i }}{{ ',' if not loop.last }}{% endfor %}", "00,12,23"),
        ("{% generation %}said{% endgeneration %}", "said"),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}", "abab"),
        ("{{ messages | map(attribute='role') | join('|') }}", "user"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages[::-1][0].content }}{{ messages[-1:] | length }}", "hi1"),
        ("{{ '%s-%02d' % ('é', 3) }}{{ '{:>3}'.format('x') }}", "é-03  x"),
        ("{{ ('a' if 'u' in 'user' else 'b') * 3 }}", "aaa"),
        ("{% set x %}block{% endset %}{{ x | replace('b', 'c') }}", "clock"),
        ("{{ [1, 2] + [3] }}{{ (1, 'a') }}{{ {'k': none} }}", "[1, 2, 3](1, 'a'){'k': None}"),
    ],
)
def test_what_templates_use_works(source, text):
    assert render(source) == text


def test_json_is_pythons_without_html_escapes():
    value = {"b": "<é'&>", "a": [1, None, True]}
    messages = [{"role": "user", "content": value}]
    assert render("{{ messages[0].content | tojson }}", messages) == json.dumps(value, ensure_ascii=False)
    assert render("{{ messages[0].content | tojson(indent=4) }}", messages) == json.dumps(
        value, ensure_ascii=False, indent=4
    )
    compact = render("{{ messages[0].content | tojson(separators=(',', ':'), sort_keys=true) }}", messages)
    assert compact == json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def test_the_date_is_given_in_the_templates_format():
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")


def test_a_template_refuses_in_its_own_words():
    with pytest.raises(BadRequest, match=r"^roles must alternate$"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ nothing.at_all }}", "'nothing' is undefined"),
        ("{{ 1 / 0 }}", "zero"),
        ("{{ 'a' + 1 }}", "str"),
        ("{{ cycler().next() }}", "^the chat template fails: .*[^\n]$"),
    ],
)
def test_a_template_that_breaks_is_a_bad_request(source, words):
    with pytest.raises(BadRequest, match=words):
        render(source)


@pytest.mark.parametrize("source", ["{% if %}", "{{ a", "{% unheard_of %}", "{{ x | no_such_filter }}", "(" * 9 + "{{"])
def test_text_that_is_no_template_is_a_bad_file(source):
    with pytest.raises(BadFile, match="template"):
        render(source)


DOUBLING = "{{% set ns = namespace(x={start}) %}}{{% for i in range(99) %}}{{% set ns.x = {step} %}}{{% endfor %}}{use}"
HOSTILE = {
    "a long loop": "{% for i in range(10**9) %}{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a loop whose test is never true": "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}"
    "{% endfor %}",
    "a loop that calls itself": "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "a repeated text": "{{ 'a' * 10**9 }}",
    "a repeated list": "{{ [1] * 10**9 }}",
    "a doubled text": DOUBLING.format(start="'aa'", step="ns.x ~ ns.x", use=""),
    "an added text": DOUBLING.format(start="'aa'", step="ns.x + ns.x", use=""),
    "an added list": DOUBLING.format(start="[1]", step="ns.x + ns.x", use=""),
    "a squared number": DOUBLING.format(start="9", step="ns.x * ns.x", use=""),
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a printed nest": DOUBLING.format(start="[1]", step="[ns.x, ns.x]", use="{{ ns.x }}"),
    "a nest as JSON": DOUBLING.format(start="[1]", step="[ns.x, ns.x]", use="{{ ns.x | tojson }}"),
    "a compared nest": DOUBLING.format(start="[1]", step="[ns.x, ns.x]", use="{{ ns.x == [ns.x, ns.x] }}"),
    "a nest as a key": DOUBLING.format(start="(1,)", step="(ns.x, ns.x)", use="{{ {ns.x: 1} }}"),
    "a printed circle": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "a padded text": "{{ 'a'.ljust(10**9) }}",
    "a centred text": "{{ 'a' | center(10**9) }}",
    "a formatted number": "{{ '%1000000000d' % 1 }}",
    "another formatted number": "{{ '{:1000000000}'.format(1) }}",
    "a computed width": "{{ '{:{w}}'.format(1, w=10**9) }}",
    "an indented text": "{{ ('a\n' * 99999) | indent(99999) }}",
    "indented JSON": "{{ [1] | tojson(indent=10**9) }}",
    "a text of replacements": "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
    "a joined text": "{{ range(99999) | join('b' * 99999) }}",
    "padded batches": "{{ [1] | batch(10**9, 'a') | list }}",
    "kept slices": "{% set ns = namespace(x=[]) %}{% set t = 'a' * 8000000 %}{% for i in range(9999) %}"
    "{% set ns.x = ns.x + [t[1:]] %}{% endfor %}",
    "much output": "{% for i in range(99999) %}{{ 'a' * 999999 }}{% endfor %}",
    "Python's internals": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a change of the messages": "{{ messages.append(1) }}",
    "another file": "{% include 'secrets' %}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_template_is_stopped(source, monkeypatch):
    monkeypatch.setattr(sandbox, "MOST_STEPS", 100_000)
    monkeypatch.setattr(sandbox, "MOST_SECONDS", 0.2)
    start = time.thread_time()
    with pytest.raises(BadRequest):
        render(source)
    assert time.thread_time() - start < 2


def test_the_time_limit_holds_where_steps_are_few_and_slow():
    source = (
        "{% set t = 'ab' * 4000000 %}{% for i in range(9999) %}{{ t | upper | length if 'ba' * 9 in t }}{% endfor %}"
    )
    start = time.thread_time()
    with pytest.raises(BadRequest, match=r"too (long|much)"):
        render(source)
    assert time.thread_time() - start < 8


def test_limits_hold_in_any_thread_and_for_each_rendering_alone():
    template = ChatTemplate("{% for i in range(99999) %}{% endfor %}ok", bos_token="", eos_token="")
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(template.render(USER))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["ok"] * 4


def test_a_long_conversation_is_within_the_limits():
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word " * 200} for i in range(2000)]
    source = "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role ~ m.content }}{% endif %}"
    source += "{{ messages | length }}{{ messages[loop.index0 - 1].role == m.role }}"
    source += "{{ messages[loop.index0:] | length }}{% endfor %}"
    assert len(render(source, messages)) > 2_000_000


# What the bounded environment changes in the compiled template must not show: compare with Jinja's own sandbox.
NAMES = st.sampled_from(["a", "b", "n", "items", "messages"])
LITERALS = st.sampled_from(["1", "'x y'", "[1, 'q']", "{'a': 'z'}", "none", "true", "''", "('t', 2)"])
EXPRESSIONS = st.recursive(
    NAMES | LITERALS,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "~", "*", "==", "<", "in", "and", "or"]), inner),
        st.builds(
            "({}) | {}".format, inner, st.sampled_from(["length", "string", "list", "upper", "first", "join(',')"])
        ),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)
STATEMENTS = st.recursive(
    st.builds("{{{{ {} }}}}".format, EXPRESSIONS) | st.sampled_from(["text\n", "  ", "{% set b = 3 %}"]),
    lambda inner: st.one_of(
        st.builds("{{% for a in {} %}}{}{{% else %}}-{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds("{{% for a in {} if {} %}}{}{{% endfor %}}".format, EXPRESSIONS, EXPRESSIONS, inner),
        st.builds("{{% if {} %}}{}{{% endif %}}".format, EXPRESSIONS, inner),
        st.builds("{{% set b %}}{}{{% endset %}}{}".format, inner, inner),
        st.builds("{{% macro f(a) %}}{}{{% endmacro %}}{{{{ f({}) }}}}".format, inner, EXPRESSIONS),
        st.builds("{}{}".format, inner, inner),
    ),
    max_leaves=5,
)


@given(STATEMENTS)
@settings(max_examples=100, deadline=None)
def test_limits_do_not_change_what_is_rendered(source):
    variables = {"a": "é<", "n": 2, "items": [1, "two", {"k": [3]}]}
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    try:
        expected = plain.from_string(source).render(**variables, messages=USER)
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError):
        with pytest.raises((BadRequest, BadFile)):
            render(source, **variables)
        return
    assert render(source, **variables) == expected
