"""The chat templates, as Jinja source, for files that carry none; a file's own template is always preferred.

Text, thoughts and tools, and pictures where a projector may read them.  What a template cannot write is refused rather
than left out.
"""

from __future__ import annotations

_MACROS = """\
{%- macro text(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- else -%}
    {%- for part in content or [] -%}
      {%- if part.type == 'text' -%}
        {{- part.text -}}
      {%- elif part.type == 'image' and pictures -%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
      {%- else -%}
        {{- raise_exception('the built-in template takes ' ~ ('text and pictures' if pictures else 'text only')
                            ~ ', not a part of type ' ~ part.type) -}}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- macro declared(tools) -%}
  {{- '# Tools\\n\\nThese functions can be called. Each line between the tags describes one as JSON:\\n\\n<tools>' -}}
  {%- for tool in tools -%}
    {{- '\\n' ~ tool | tojson -}}
  {%- endfor -%}
  {{- '\\n</tools>\\n\\n' -}}
{%- endmacro -%}
{%- macro json_call(function) -%}
  {%- set arguments = function.arguments if function.arguments is string else function.arguments | tojson -%}
  {{- '<tool_call>\\n{"name": ' ~ function.name | tojson ~ ', "arguments": ' ~ arguments ~ '}\\n</tool_call>' -}}
{%- endmacro -%}
{%- macro tagged_call(function) -%}
  {%- if function.arguments is not mapping -%}
    {{- raise_exception('the arguments of a tool call must be an object') -}}
  {%- endif -%}
  {{- '<tool_call>\\n<function=' ~ function.name ~ '>\\n' -}}
  {%- for name, value in function.arguments | items -%}
    {{- '<parameter=' ~ name ~ '>\\n' ~ (value if value is string else value | tojson) ~ '\\n</parameter>\\n' -}}
  {%- endfor -%}
  {{- '</function>\\n</tool_call>' -}}
{%- endmacro -%}
{%- macro results(first) -%}
  {#- A run of tool results shares one user turn. -#}
  {{- '<|im_start|>user' -}}
  {%- set run = namespace(on=true) -%}
  {%- for message in messages[first:] -%}
    {%- set run.on = run.on and message.role == 'tool' -%}
    {%- if run.on -%}
      {{- '\\n<tool_response>\\n' ~ content(message) ~ '\\n</tool_response>' -}}
    {%- endif -%}
  {%- endfor -%}
  {{- '<|im_end|>\\n' -}}
{%- endmacro -%}
{%- macro empty_or_open_thought(opens) -%}
  {%- if enable_thinking is defined and not enable_thinking -%}
    {{- '<think>\\n\\n</think>\\n\\n' -}}
  {%- elif opens -%}
    {{- '<think>\\n' -}}
  {%- endif -%}
{%- endmacro -%}
{%- if not messages -%}
  {{- raise_exception('a conversation needs a message') -}}
{%- endif -%}
{%- set leading = messages[0].role in ('system', 'developer') -%}
{#- The tool loop under way begins after the last message that a user wrote. -#}
{%- set last = namespace(query=-1) -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {%- set said = text(message.content) -%}
    {%- if not (said.startswith('<tool_response>') and said.endswith('</tool_response>')) -%}
      {%- set last.query = loop.index0 -%}
    {%- endif -%}
  {%- endif -%}
{%- endfor -%}
"""

_TURNS = """\
{%- for message in messages -%}
  {%- set here = loop.index0 -%}
  {%- if message.role == 'user' -%}
    {{- '<|im_start|>user\\n' ~ content(message) ~ '<|im_end|>\\n' -}}
  {%- elif message.role == 'assistant' -%}
    {%- set said, thought = content(message), message.reasoning_content or message.reasoning or '' -%}
    {%- if not thought and '</think>' in said -%}
      {%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1] -%}
      {%- set said = said.split('</think>')[-1].lstrip('\\n') -%}
    {%- endif -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if keeps_thought(here, loop.last, thought) | trim -%}
      {{- '<think>\\n' ~ thought.strip('\\n') ~ '\\n</think>\\n\\n' ~ said.lstrip('\\n') -}}
    {%- else -%}
      {{- said -}}
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {{- (before_calls if loop.first and said else '' if loop.first else '\\n') ~ written(call.function) -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'tool' -%}
    {%- if here == 0 or messages[here - 1].role != 'tool' -%}
      {{- results(here) -}}
    {%- endif -%}
  {%- elif not (leading and loop.first) -%}
    {{- raise_exception('the built-in template takes a leading system message, then user, assistant and tool; got '
                        ~ message.role) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' ~ empty_or_open_thought(opens) -}}
{%- endif -%}
"""

QWEN3 = (
    """\
{%- set pictures = false -%}
{%- macro content(message) -%}
  {{- text(message.content) -}}
{%- endmacro -%}
{%- macro keeps_thought(index, last_message, thought) -%}
  {{- 'yes' if index > last.query and (last_message or thought) else '' -}}
{%- endmacro -%}
{%- macro written(function) -%}
  {{- json_call(function) -}}
{%- endmacro -%}
"""
    + _MACROS
    + """\
{%- set opens, before_calls = false, '\\n' -%}
{%- if leading or tools -%}
  {%- set system = content(messages[0]) if leading else '' -%}
  {{- '<|im_start|>system\\n' ~ system -}}
  {%- if tools -%}
    {{- ('\\n\\n' if system else '') ~ declared(tools) -}}
    {{- 'Call a function by writing its name and its arguments as one JSON object between the tags:\\n' -}}
    {{- '<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>' -}}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endif -%}
"""
    + _TURNS
)

QWEN35 = (
    """\
{%- set pictures = true -%}
{%- macro content(message) -%}
  {{- text(message.content) | trim -}}
{%- endmacro -%}
{%- macro keeps_thought(index, last_message, thought) -%}
  {{- 'yes' if index > last.query or (preserve_thinking and thought) else '' -}}
{%- endmacro -%}
{%- macro written(function) -%}
  {{- tagged_call(function) -}}
{%- endmacro -%}
"""
    + _MACROS
    + """\
{%- if last.query < 0 -%}
  {{- raise_exception('a conversation needs a user message') -}}
{%- endif -%}
{%- set opens, before_calls = true, '\\n\\n' -%}
{%- if leading or tools -%}
  {%- set system = content(messages[0]) if leading else '' -%}
  {{- '<|im_start|>system\\n' -}}
  {%- if tools -%}
    {{- declared(tools) -}}
    {{- 'Call a function by tags, one for the function and one for each parameter, values on lines of their own:\\n' -}}
    {{- '<tool_call>\\n<function=some_function>\\n<parameter=some_parameter>\\nvalue\\n</parameter>\\n' -}}
    {{- '</function>\\n</tool_call>\\nWrite texts as they stand and other values as JSON. ' -}}
    {{- 'Give every required parameter, and write nothing after the last call.' -}}
    {{- '\\n\\n' if system else '' -}}
  {%- endif -%}
  {{- system ~ '<|im_end|>\\n' -}}
{%- endif -%}
"""
    + _TURNS
)
