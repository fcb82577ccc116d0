"""The npm packages `openai` and `ollama`, where node finds them (NODE_PATH)."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest


def node(package: str, program: str, url: str) -> Any:
    """What a program prints as JSON; skips where node or the package is missing."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if subprocess.run(["node", "-e", f"require.resolve({package!r})"], capture_output=True).returncode:
        pytest.skip(f"the npm package {package} is not installed where NODE_PATH says")
    whole = f"const url = {url!r}; (async () => {{ {program} }})().then(found => console.log(JSON.stringify(found)))"
    done = subprocess.run(["node", "-e", whole], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_openais_package_answers_streams_and_fails_as_it_should(echo) -> None:
    program = """
        const OpenAI = require('openai').default
        const client = new OpenAI({ baseURL: url + '/v1', apiKey: 'any' })
        const messages = [{ role: 'user', content: 'Fine weather' }]
        const whole = await client.chat.completions.create({ model: 'any', messages })
        let text = ''
        for await (const chunk of await client.chat.completions.create({ model: 'any', messages, stream: true }))
            text += chunk.choices[0]?.delta?.content ?? ''
        let refused
        try { await client.chat.completions.create({ model: 'any', messages, n: 3 }) }
        catch (error) { refused = [error.constructor.name, error.status, error.param] }
        const models = (await client.models.list()).data.map(model => model.id)
        return { whole: whole.choices[0].message.content, text, refused, models }
    """
    assert node("openai", program, echo.url) == {
        "whole": "Fine weather",
        "text": "Fine weather",
        "refused": ["BadRequestError", 400, "n"],
        "models": ["tiny-echo"],
    }
    assert len(echo.engine.requests) == 2


def test_openais_package_reads_calls(echo) -> None:
    program = """
        const OpenAI = require('openai').default
        const client = new OpenAI({ baseURL: url + '/v1', apiKey: 'any' })
        const content = '<think>why</think><call>{"name": "tide", "arguments": {"at": "Brest"}}</call>'
        const tools = [{ type: 'function', function: { name: 'tide', parameters: { type: 'object', properties: {} } } }]
        const messages = [{ role: 'user', content }]
        const stream = client.chat.completions.stream({ model: 'any', messages, tools })
        const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0]
        return [finish_reason, message.tool_calls.map(({ function: f }) => [f.name, JSON.parse(f.arguments)])]
    """
    assert node("openai", program, echo.url) == ["tool_calls", [["tide", {"at": "Brest"}]]]


def test_ollamas_package_answers_streams_and_fails_as_it_should(echo) -> None:
    program = """
        const { Ollama } = require('ollama')
        const client = new Ollama({ host: url })
        const messages = [{ role: 'user', content: 'Fine weather' }]
        const whole = await client.chat({ model: 'tiny-echo', messages })
        let text = ''
        for await (const part of await client.chat({ model: 'tiny-echo', messages, stream: true }))
            text += part.message.content
        const generated = await client.generate({ model: 'tiny-echo', prompt: 'hi' })
        const content = '<call>{"name": "tide", "arguments": {"at": "Brest"}}</call>'
        const tools = [{ type: 'function', function: { name: 'tide', parameters: { type: 'object', properties: {} } } }]
        const called = await client.chat({ model: 'tiny-echo', messages: [{ role: 'user', content }], tools })
        let refused
        try { await client.generate({ model: 'tiny-echo', prompt: 'hi', suffix: '.' }) }
        catch (error) { refused = [error.name, error.status_code, error.message.split(':')[0]] }
        return { whole: whole.message.content, text, generated: generated.response, refused,
                 called: called.message.tool_calls[0].function.arguments, count: whole.eval_count }
    """
    assert node("ollama", program, echo.url) == {
        "whole": "Fine weather",
        "text": "Fine weather",
        "generated": "hi",
        "refused": ["ResponseError", 400, "suffix"],
        "called": {"at": "Brest"},
        "count": 13,
    }
