"""Using a model from Python: a file, an architecture and a device that plugins bring, and the answers."""

from __future__ import annotations

import re
import threading
import time
from functools import partial

import gguf
import pytest
from fake_device import VOCABULARY, Device, Tokenizer, continuation, model

import golem_core
from golem_core import Architecture, ChatModel, DeviceType, Graph, GraphError, SamplingDefaults, hookimpl, plugins
from golem_core.engine import Engine, Generation, Token
from golem_core.errors import BadFile, BadRequest, GolemError, Unsupported
from golem_core.loaded_model import LoadedModel
from golem_core.sampling.grammar import Thought
from golem_core.text import ChatTemplate, Content, JsonCalls, Markers, Reasoning

TEMPLATE = "{% for message in messages %}{{ message.role[0] }}{{ message.content }}{% endfor %}{{ extra }}"


class Letters(Tokenizer):
    """Every character is a token of its own; `<e>` is the end token when control tokens are wanted."""

    bos, eos = 1, 0

    def encode(self, text, *, add_special=False, parse_special=False):
        if parse_special:
            text = text.replace("<e>", "\0")
        return [self.bos] * add_special + [ord(letter) % VOCABULARY for letter in text]

    def decode(self, ids, *, special=False):
        return b"".join(self.piece(token, special=special) for token in ids).decode()

    def token_text(self, token):
        return "<control>"


class Opened(Device):
    closed = False
    options: dict

    def close(self):
        self.closed = True


class Plugin:
    """What two packages would bring: an architecture of one, a device of the other."""

    def __init__(self):
        self.devices = []
        self.template = ChatTemplate(TEMPLATE, bos_token="", eos_token="")
        self.fallback = None

    @hookimpl
    def golem_architectures(self):
        def open_model(file):
            return model(
                name="tiny",
                file=file,
                tokenizer=Letters(),
                template=self.template,
                fallback_template=self.fallback,
                sampling=SamplingDefaults(temperature=0.0),
            )

        return [
            Architecture(("letters",), ChatModel, open_model),
            Architecture(("pictures",), dict, lambda file: {}),
        ]

    @hookimpl
    def golem_devices(self):
        def open_device(options):
            device = Opened()
            device.options = dict(options)
            self.devices.append(device)
            return device

        return [DeviceType("abacus", lambda: "beads", open_device)]


@pytest.fixture
def plugin():
    added = Plugin()
    plugins.manager().register(added, "letters")
    yield added
    plugins.manager().unregister(added)


def written(path, architecture):
    writer = gguf.GGUFWriter(path, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "tiny.gguf", "letters")


def test_a_model_answers_and_its_tokens_carry_their_facts(plugin, file):
    with golem_core.load(file, device="abacus", context=64, threads=3) as loaded:
        assert plugin.devices[0].options["threads"] == 3
        prompt = loaded.tokenize("hello")
        tokens = list(loaded.generate(prompt, max_tokens=6, top_logprobs=2, ignore_eos=True))
        assert [token.id for token in tokens] == continuation(prompt, 6, 8, past_end=True)
        assert all(token.logprob == token.top_logprobs[0][1] for token in tokens)
        assert all(len(token.top_logprobs) == 2 for token in tokens)
        answer = loaded.generate(prompt, max_tokens=6, ignore_eos=True, logprobs=False)
        assert answer.text() == "".join(token.text for token in tokens)
        assert answer.generation.finish_reason == "length"
        assert answer.generation.cached_tokens > 0
    assert plugin.devices[0].closed


def test_tokenizing_with_and_without_special_tokens(plugin, file):
    with golem_core.load(file, device="abacus", context=64) as loaded:
        plain, special = loaded.tokenize("a<e>"), loaded.tokenize("a<e>", special=True)
        assert plain == [0 + ord(letter) % VOCABULARY for letter in "a<e>"]
        assert special == [1, 0, 0]
        assert loaded.detokenize([1, 50, 0]) == chr(0x100 + 50)
        assert loaded.detokenize([1, 50], special=True) == "<control>" + chr(0x100 + 50)


def test_a_keyword_that_is_none_is_named(plugin, file):
    for load in (golem_core.load, golem_core.load_embedder):
        with pytest.raises(TypeError, match=r"'widht' is no keyword of load.*; did you mean 'width'"):
            load(file, device="abacus", widht=64)
        with pytest.raises(TypeError, match=r"'ducks' is no keyword of load.*; no device has such an option"):
            load(file, device="abacus", ducks=64)
        with pytest.raises(TypeError, match="'parallel' is no keyword"):  # of golem serve, and no device's
            load(file, device="abacus", parallel=2)
    with golem_core.load(file, device="abacus", context=64, kv="f32"):
        assert plugin.devices[0].options["kv"] == "f32"


def test_a_keyword_that_no_answer_has_is_named_with_one_that_is_near(plugin, file):
    with golem_core.load(file, device="abacus", context=64) as loaded:
        for name, ask in (
            ("generate", lambda **given: loaded.generate([1, 2], **given)),
            ("chat", lambda **given: loaded.chat([{"role": "user", "content": "hi"}], **given)),
        ):
            for given, near in (("max_token", "max_tokens"), ("repeat_penality", "repeat_penalty")):
                with pytest.raises(TypeError, match=f"^'{given}' is no keyword of {name}; did you mean '{near}'\\?$"):
                    ask(**{given: 2})
            with pytest.raises(TypeError, match=f"'foo' is no keyword of {name}; it takes .*max_tokens.* logit_bias"):
                ask(foo=2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"context": 0}, "context=0: expected at least 2, 2 positions for each of slots=1"),
        ({"context": 5, "slots": 3}, "context=5: expected at least 6, 2 positions for each of slots=3"),
        ({"slots": 0}, "slots=0: expected at least 1"),
    ],
)
def test_a_context_without_room_for_a_conversation_is_refused_with_what_is_enough(plugin, file, given, told):
    with pytest.raises(GolemError) as refusal:
        golem_core.load(file, device="abacus", **given)
    assert str(refusal.value) == told


def test_a_graph_without_logits_or_with_others_is_refused_as_the_model_is_loaded():
    def build(name, size):
        g = Graph()
        g.output(name, g.take(g.input("x", (size,))))
        return g

    def whole():
        g = Graph()
        g.output("logits", g.input("x", (VOCABULARY,)))
        return g

    with pytest.raises(GraphError, match=r"'logits' has the rows 'all' and not only .* what take\(x\) gives"):
        Engine(model(build=whole), Device(), context=64)
    for given, told in (
        (("logit", VOCABULARY), "no output 'logits'; it has ['logit']"),
        (("logits", VOCABULARY + 1), f"the shape [{VOCABULARY + 1}], and the model a vocabulary of {VOCABULARY}"),
    ):
        with pytest.raises(GraphError, match=re.escape(told)):
            Engine(model(build=partial(build, *given)), Device(), context=64)
    with pytest.raises(GraphError, match="is no Graph but a NoneType"):
        Engine(model(build=lambda: None), Device(), context=64)


@pytest.mark.parametrize("token", [-1, VOCABULARY])
def test_a_token_to_suppress_that_the_model_has_not_is_refused_as_it_is_loaded(token):
    told = f"the token {token} to suppress lies outside its {VOCABULARY} tokens"
    with pytest.raises(GolemError, match=told):
        Engine(model(suppress=(3, token)), Device(), context=64)


def test_a_text_in_place_of_token_ids_is_told(plugin, file):
    with golem_core.load(file, device="abacus", context=64) as loaded, pytest.raises(BadRequest, match=r"tokenize\(\)"):
        loaded.generate("hi")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"temperature": "hot"}, "temperature: expected a number, got 'hot'"),
        ({"frequency_penalty": "high"}, "frequency_penalty: expected a number, got 'high'"),
        ({"top_k": 4.5}, "top_k: expected a whole number, got 4.5"),
        ({"seed": "x"}, "seed: expected a whole number, got 'x'"),
        ({"repeat_last_n": None}, "repeat_last_n: expected a whole number, got None"),
        ({"stop": 3}, "stop: expected a text or several, got 3"),
        ({"stop": ["a", 3]}, "stop: expected a text or several, got ['a', 3]"),
    ],
)
def test_a_value_of_another_type_is_told_with_its_field(plugin, file, given, told):
    with golem_core.load(file, device="abacus", context=64) as loaded, pytest.raises(BadRequest) as refusal:
        loaded.generate([2], max_tokens=1, **given)
    assert str(refusal.value) == told


def test_a_conversation_without_a_message_and_a_text_that_is_none_are_refused(plugin, file):
    with golem_core.load(file, device="abacus", context=64) as loaded:
        with pytest.raises(BadRequest, match=r"^messages: the conversation has no message$"):
            loaded.chat([])
        with pytest.raises(BadRequest, match=r"^text: expected a text, got 3$"):
            loaded.tokenize(3)  # type: ignore[arg-type]


def test_the_file_s_sampling_holds_unless_the_call_says_otherwise(plugin, file):
    with golem_core.load(file, device="abacus", context=64) as loaded:
        prompt = loaded.tokenize("hi")
        greedy = [token.id for token in loaded.generate(prompt, max_tokens=12, ignore_eos=True)]
        assert greedy == continuation(prompt, 12, 8, past_end=True)
        settings = dict(max_tokens=12, temperature=9.0, top_k=0, top_p=1.0, min_p=0.0, ignore_eos=True)
        one, two, other = ([token.id for token in loaded.generate(prompt, seed=seed, **settings)] for seed in (1, 1, 2))
        assert one == two != other
        assert one != greedy
        biased = loaded.generate(prompt, max_tokens=3, logit_bias={7: 100.0})
        assert [token.id for token in biased] == [7, 7, 7]


def test_a_conversation_goes_through_the_template(plugin, file):
    messages = [{"role": "user", "content": "hey"}]
    with golem_core.load(file, device="abacus", context=64) as loaded:
        spoken = loaded.chat(messages, max_tokens=4, ignore_eos=True, template_variables={"extra": "!"})
        written_out = loaded.generate(loaded.tokenize("uhey!"), max_tokens=4, ignore_eos=True)
        assert spoken.text() == written_out.text()


def test_the_built_in_template_stands_in_and_without_one_there_is_no_conversation(plugin, file):
    messages = [{"role": "user", "content": "hey"}]
    plugin.template = None
    with (
        golem_core.load(file, device="abacus", context=64) as loaded,
        pytest.raises(BadRequest, match="tiny has no chat template"),
    ):
        loaded.chat(messages)
    plugin.fallback = TEMPLATE
    with golem_core.load(file, device="abacus", context=64) as loaded:
        assert loaded.chat(messages, max_tokens=2, ignore_eos=True).generation.prompt_tokens == len("uhey")


def test_letting_go_of_an_answer_gives_its_slot_back(plugin, file):
    with golem_core.load(file, device="abacus", context=4000) as loaded:
        plugin.devices[0].passes[0].seconds = 0.001
        prompt = loaded.tokenize("endless")
        for token in loaded.generate(prompt, max_tokens=3000, ignore_eos=True):
            assert token.id == continuation(prompt, 1, 8)[0]
            break
        start = time.monotonic()
        following = loaded.generate(loaded.tokenize("next"), max_tokens=2, ignore_eos=True)
        assert len(list(following)) == 2
        assert time.monotonic() - start < 1.5


def test_what_is_missing_is_named(plugin, file, tmp_path):
    with pytest.raises(Unsupported, match="sundial"):
        golem_core.load(file, device="sundial")
    with pytest.raises(Unsupported, match="nobody"):
        golem_core.load(written(tmp_path / "other.gguf", "nobody"), device="abacus")
    with pytest.raises(Unsupported, match="dict"):
        golem_core.load(written(tmp_path / "pictures.gguf", "pictures"), device="abacus")
    with pytest.raises(Unsupported, match="holds a conversation model, which is not an embedding model"):
        golem_core.load_embedder(file, device="abacus")
    with pytest.raises(Unsupported, match=r"eyes\.gguf: a projector; .*-mmproj"):
        golem_core.load(written(tmp_path / "eyes.gguf", "clip"), device="abacus")
    with pytest.raises(BadFile, match=r"absent\.gguf"):
        golem_core.load(tmp_path / "absent.gguf", device="abacus")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BadFile("tiny.gguf: merge 3 is no pair"), r"^tiny.gguf: merge 3 is no pair$"),
        (ValueError("a\nb"), r"tiny.gguf: .*: a b$"),
    ],
)
def test_a_vocabulary_that_breaks_while_weights_load_fails_the_start(plugin, file, monkeypatch, error, words):
    def prepare(self):
        raise error

    monkeypatch.setattr(Letters, "prepare", prepare)
    before = threading.active_count()
    with pytest.raises(BadFile, match=words):
        golem_core.load(file, device="abacus", context=64)
    assert plugin.devices[0].closed and threading.active_count() == before


@pytest.mark.parametrize("context", [64, 0])  # closed before it was ready, and refused
def test_no_thread_is_left_where_a_model_is_given_up_while_it_loads(plugin, file, monkeypatch, context):
    monkeypatch.setattr(Letters, "prepare", lambda self: time.sleep(0.3))
    before = threading.active_count()
    if context:
        golem_core.load(file, device="abacus", context=context, wait=False).close()
    else:
        with pytest.raises(GolemError, match="context=0"):
            golem_core.load(file, device="abacus", context=context)
    assert threading.active_count() == before


def test_a_template_variable_that_is_not_the_callers_is_named():
    class Stub:
        template = ChatTemplate("{{ messages[0].content }}", bos_token="", eos_token="")

    model = LoadedModel(Stub(), None, None)  # type: ignore[arg-type]
    for name in ("self", "messages", "bos_token"):
        with pytest.raises(BadRequest, match=name):
            model.chat([{"role": "user", "content": "x"}], template_variables={name: 1})


# ---------------------------------------------------------------- sorted answers


class Saying:
    """An engine whose answers spell a given text."""

    def __init__(self, text):
        self.text = text
        self.requests = []

    def submit(self, request):
        self.requests.append(request)
        generation = Generation(len(request.prompt), lambda: None)
        generation.start(0, 0)
        for index, letter in enumerate(self.text):
            generation.deliver(Token(index, letter))
        generation.end("stop")
        return generation


TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
SAID = '<think>hm</think>Well.<tool_call>{"name": "tide", "arguments": {"port": "Brest"}}</tool_call>'


def saying(text, **facts):
    markers = Markers(("<think>", "</think>"), ("<tool_call>", "</tool_call>"), (JsonCalls(),))
    template = ChatTemplate(TEMPLATE + "{{ tools }}{{ enable_thinking }}", bos_token="", eos_token="")
    given = {"tokenizer": Letters(), "template": template, "markers": markers} | facts
    return LoadedModel(model(name="tiny", file=None, **given), Saying(text), None)  # type: ignore[arg-type]


def test_the_answer_to_a_conversation_is_sorted():
    loaded = saying(SAID)
    pieces = list(loaded.chat([{"role": "user", "content": "x"}], tools=TOOLS))
    assert "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)) == "hm"
    assert "".join(piece.text for piece in pieces if isinstance(piece, Content)) == "Well."
    assert [call.name for call in pieces[-1].calls] == ["tide"]
    answer = loaded.chat([{"role": "user", "content": "x"}], tools=TOOLS).whole()
    assert (answer.reasoning, answer.content, answer.finish_reason) == ("hm", "Well.", "tool_calls")
    assert [(call.name, call.arguments) for call in answer.calls] == [("tide", {"port": "Brest"})]
    assert loaded.chat([{"role": "user", "content": "x"}]).text() == SAID.removeprefix("<think>hm</think>")


def test_thinking_is_off_unless_asked_for_and_a_schema_holds_after_it():
    loaded = saying("<think>hm</think>true")
    read = lambda **asked: (loaded.chat([{"role": "user", "content": "x"}], **asked), loaded.engine.requests[-1])
    _, off = read()
    _, on = read(template_variables={"enable_thinking": True})
    assert off.prompt == loaded.tokenize("uxNoneFalse") and on.prompt == loaded.tokenize("uxNoneTrue")
    answer, held = read(template_variables={"enable_thinking": True}, json_schema={"type": "boolean"})
    assert held.sampling.grammar.thought == Thought(("<think>", "</think>"), False)
    assert (answer.whole().reasoning, loaded.engine.text[-4:]) == ("hm", "true")
    assert read(json_schema={"type": "boolean"})[1].sampling.grammar.thought is None


def test_tools_of_a_model_without_calls_are_refused():
    for facts in ({"markers": Markers()}, {"template": ChatTemplate(TEMPLATE, bos_token="", eos_token="")}):
        with pytest.raises(BadRequest, match="tiny has no tool calls"):
            saying("", **facts).chat([{"role": "user", "content": "x"}], tools=TOOLS)
