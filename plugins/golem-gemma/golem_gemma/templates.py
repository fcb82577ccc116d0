"""The chat templates, as Jinja source, for files that carry none; a file's own template is always preferred.

Text only: a part of a message that is not text, or a tool, is refused rather than left out.
"""

from __future__ import annotations

GEMMA3 = """\
{%- macro text(content) -%}
  {%- if content is string -%}
    {{- content | trim -}}
  {%- else -%}
    {%- for part in content or [] -%}
      {%- if part.type != 'text' -%}
        {{- raise_exception('the built-in template takes text only, not a part of type ' ~ part.type) -}}
      {%- endif -%}
      {{- part.text | trim -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- if tools -%}
  {{- raise_exception('Gemma 3 has no tool calls') -}}
{%- endif -%}
{%- set system, turns = '', messages -%}
{%- if messages and messages[0].role in ('system', 'developer') -%}
  {%- set system, turns = text(messages[0].content) ~ '\\n\\n', messages[1:] -%}
{%- endif -%}
{%- if not turns -%}
  {{- raise_exception('a conversation needs a user message') -}}
{%- endif -%}
{{- bos_token -}}
{%- for message in turns -%}
  {%- if message.role != ('assistant' if loop.index0 % 2 else 'user') -%}
    {{- raise_exception('roles must alternate user, assistant, user, ... after a leading system message; got '
                        ~ message.role) -}}
  {%- endif -%}
  {{- '<start_of_turn>' ~ ('user' if message.role == 'user' else 'model') ~ '\\n' -}}
  {{- (system if loop.first else '') ~ text(message.content) ~ '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<start_of_turn>model\\n' -}}
{%- endif -%}
"""

GEMMA4 = """\
{%- macro text(content, after='') -%}
  {%- if content is string -%}
    {{- content | trim -}}
  {%- else -%}
    {%- for part in content or [] -%}
      {%- if part.type != 'text' -%}
        {{- raise_exception('the built-in template takes text only, not a part of type ' ~ part.type) -}}
      {%- endif -%}
      {{- part.text | trim ~ after -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- macro without_thoughts(answer) -%}
  {%- set kept = namespace(text='') -%}
  {%- for piece in answer.split('<channel|>') -%}
    {%- set kept.text = kept.text ~ piece.split('<|channel>')[0] -%}
  {%- endfor -%}
  {{- kept.text | trim -}}
{%- endmacro -%}
{%- if tools -%}
  {{- raise_exception('the built-in template cannot declare tools; use a file that has a chat template') -}}
{%- endif -%}
{%- if not messages -%}
  {{- raise_exception('a conversation needs a message') -}}
{%- endif -%}
{%- set leading = messages[0].role in ('system', 'developer') -%}
{{- bos_token -}}
{%- if leading or enable_thinking -%}
  {{- '<|turn>system\\n' -}}
  {%- if enable_thinking -%}
    {{- '<|think|>\\n' -}}
  {%- endif -%}
  {%- if leading -%}
    {{- text(messages[0].content, ' ') -}}
  {%- endif -%}
  {{- '<turn|>\\n' -}}
{%- endif -%}
{%- set last = namespace(user=-1, role='') -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {%- set last.user = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {{- '<|turn>user\\n' ~ text(message.content) ~ '<turn|>\\n' -}}
  {%- elif message.role == 'assistant' -%}
    {%- if last.role != 'assistant' -%}
      {{- '<|turn>model\\n' -}}
    {%- endif -%}
    {%- set thought = message.reasoning or message.reasoning_content -%}
    {%- if thought and loop.index0 > last.user -%}
      {{- '<|channel>thought\\n' ~ thought ~ '\\n<channel|>' -}}
    {%- endif -%}
    {{- without_thoughts(text(message.content)) ~ '<turn|>\\n' -}}
  {%- elif not (leading and loop.first) -%}
    {{- raise_exception('the built-in template takes a leading system message, then user and assistant; got '
                        ~ message.role) -}}
  {%- endif -%}
  {%- set last.role = message.role -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|turn>model\\n' -}}
  {%- if empty_thought and not enable_thinking -%}
    {{- '<|channel>thought\\n<channel|>' -}}
  {%- endif -%}
{%- endif -%}
"""


EMPTY_THOUGHT = "<|channel>thought\\n<channel|>"
"""What a template's source says, the newline still escaped, if answers without thinking begin with an empty thought."""


def gemma4(*, empty_thought: bool) -> str:
    """The template of a Gemma 4; with `empty_thought`, an answer without thinking begins after an empty thought."""
    return f"{{%- set empty_thought = {str(empty_thought).lower()} -%}}\n{GEMMA4}"
