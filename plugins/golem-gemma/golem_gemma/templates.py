"""The chat templates, as Jinja source, for files that carry none; a file's own template is always preferred.

Text and pictures, and for Gemma 4 tools and recordings: what a template cannot write is refused rather than left out.
"""

from __future__ import annotations

GEMMA3 = """\
{%- macro text(content) -%}
  {%- if content is string -%}
    {{- content | trim -}}
  {%- else -%}
    {%- for part in content or [] -%}
      {%- if part.type == 'text' -%}
        {{- part.text | trim -}}
      {%- elif part.type == 'image' -%}
        {{- '<start_of_image>' -}}
      {%- else -%}
        {{- raise_exception('the built-in template takes no part of type ' ~ part.type) -}}
      {%- endif -%}
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
      {%- if part.type == 'text' -%}
        {{- part.text | trim ~ after -}}
      {%- elif part.type in ('image', 'audio') -%}
        {{- '<|' ~ part.type ~ '|>' -}}
      {%- else -%}
        {{- raise_exception('the built-in template takes no part of type ' ~ part.type) -}}
      {%- endif -%}
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
{#- Values in calls, results and declarations: one kind of quote, nothing escaped. -#}
{%- macro value(v, quote='') -%}
  {%- if v is none -%}
    null
  {%- elif v is boolean -%}
    {{- 'true' if v else 'false' -}}
  {%- elif v is string -%}
    {{- '<|"|>' ~ v ~ '<|"|>' -}}
  {%- elif v is mapping -%}
    {{- '{' -}}
    {%- for key, inner in v | dictsort -%}
      {{- ('' if loop.first else ',') ~ quote ~ key ~ quote ~ ':' ~ value(inner, quote) -}}
    {%- endfor -%}
    {{- '}' -}}
  {%- elif v is sequence -%}
    {{- '[' -}}
    {%- for inner in v -%}
      {{- ('' if loop.first else ',') ~ value(inner, quote) -}}
    {%- endfor -%}
    {{- ']' -}}
  {%- else -%}
    {{- v -}}
  {%- endif -%}
{%- endmacro -%}
{%- macro properties(schemas) -%}
  {{- 'properties:{' -}}
  {%- for name, schema in schemas | dictsort -%}
    {{- ('' if loop.first else ',') ~ name ~ ':' ~ property(schema) -}}
  {%- endfor -%}
  {{- '}' -}}
{%- endmacro -%}
{%- macro property(schema) -%}
  {%- set kind = schema.type | default('', true) | upper -%}
  {%- set parts = ['description:' ~ value(schema.description)] if schema.description else [] -%}
  {%- if kind == 'STRING' and schema.enum -%}
    {%- set parts = parts + ['enum:' ~ value(schema.enum)] -%}
  {%- elif kind == 'ARRAY' and schema['items'] is mapping and schema['items'] -%}
    {%- set parts = parts + ['items:' ~ item(schema['items'])] -%}
  {%- endif -%}
  {%- if schema.nullable -%}
    {%- set parts = parts + ['nullable:true'] -%}
  {%- endif -%}
  {%- if kind == 'OBJECT' -%}
    {%- set parts = parts + [properties(schema.properties or {})] -%}
    {%- if schema.required -%}
      {%- set parts = parts + ['required:' ~ value(schema.required)] -%}
    {%- endif -%}
  {%- endif -%}
  {{- '{' ~ (parts + ['type:' ~ value(kind)]) | join(',') ~ '}' -}}
{%- endmacro -%}
{%- macro item(schema) -%}
  {%- set found = namespace(parts=[]) -%}
  {%- for key, v in schema | dictsort -%}
    {%- if v is none -%}
    {%- elif key == 'properties' -%}
      {%- set found.parts = found.parts + [properties(v)] -%}
    {%- elif key == 'type' -%}
      {%- set found.parts = found.parts + ['type:' ~ value(v | upper if v is string else v | map('upper') | list)] -%}
    {%- else -%}
      {%- set found.parts = found.parts + [key ~ ':' ~ value(v, '<|"|>')] -%}
    {%- endif -%}
  {%- endfor -%}
  {{- '{' ~ found.parts | join(',') ~ '}' -}}
{%- endmacro -%}
{%- macro declaration(function) -%}
  {%- set parts = ['description:' ~ value(function.description or '')] -%}
  {%- set given = function.parameters -%}
  {%- if given -%}
    {%- set inner = [properties(given.properties)] if given.properties else [] -%}
    {%- if given.required -%}
      {%- set inner = inner + ['required:' ~ value(given.required)] -%}
    {%- endif -%}
    {%- if given.type -%}
      {%- set inner = inner + ['type:' ~ value(given.type | upper)] -%}
    {%- endif -%}
    {%- set parts = parts + ['parameters:{' ~ inner | join(',') ~ '}'] -%}
  {%- endif -%}
  {{- '<|tool>declaration:' ~ function.name ~ '{' ~ parts | join(',') ~ '}<tool|>' -}}
{%- endmacro -%}
{%- macro result(message, calls) -%}
  {%- set made = namespace(by=message.name or 'unknown') -%}
  {%- for call in calls -%}
    {%- if message.tool_call_id and call.id == message.tool_call_id -%}
      {%- set made.by = call.function.name -%}
    {%- endif -%}
  {%- endfor -%}
  {%- set content = message.content -%}
  {%- if content is not mapping -%}
    {%- set content = {'value': content if content is string else text(content)} -%}
  {%- endif -%}
  {{- '<|tool_response>response:' ~ made.by ~ value(content) ~ '<tool_response|>' -}}
{%- endmacro -%}
{%- if not messages -%}
  {{- raise_exception('a conversation needs a message') -}}
{%- endif -%}
{%- set leading = messages[0].role in ('system', 'developer') -%}
{{- bos_token -}}
{%- if leading or enable_thinking or tools -%}
  {{- '<|turn>system\\n' -}}
  {%- if enable_thinking -%}
    {{- '<|think|>\\n' -}}
  {%- endif -%}
  {%- if leading -%}
    {{- text(messages[0].content, ' ') -}}
  {%- endif -%}
  {%- for tool in tools or [] -%}
    {{- declaration(tool.function) -}}
  {%- endfor -%}
  {{- '<turn|>\\n' -}}
{%- endif -%}
{%- set last = namespace(user=-1, role='', calls=[], results='') -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {%- set last.user = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- set here = loop.index0 -%}
  {%- if message.role == 'tool' -%}
    {%- if not last.calls -%}
      {{- raise_exception('a tool message must follow an assistant message with tool_calls') -}}
    {%- endif -%}
  {%- else -%}
    {%- set header = last.role != 'assistant' -%}
    {%- set last.role, last.calls, last.results = message.role, message.tool_calls or [], '' -%}
    {%- if message.role == 'user' -%}
      {{- '<|turn>user\\n' ~ text(message.content) ~ '<turn|>\\n' -}}
    {%- elif message.role == 'assistant' -%}
      {%- set following = namespace(role='') -%}
      {%- for other in messages[here + 1:] -%}
        {%- if following.role == '' and other.role == 'tool' -%}
          {%- set last.results = last.results ~ result(other, last.calls) -%}
        {%- elif following.role == '' -%}
          {%- set following.role = other.role -%}
        {%- endif -%}
      {%- endfor -%}
      {{- '<|turn>model\\n' if header else '' -}}
      {%- set thought = message.reasoning or message.reasoning_content -%}
      {%- if thought and (here > last.user or preserve_thinking and last.calls) -%}
        {{- '<|channel>thought\\n' ~ thought ~ '\\n<channel|>' -}}
      {%- endif -%}
      {%- for call in last.calls -%}
        {%- if call.function.arguments is not mapping -%}
          {{- raise_exception('the arguments of a tool call must be an object') -}}
        {%- endif -%}
        {{- '<|tool_call>call:' ~ call.function.name ~ value(call.function.arguments) ~ '<tool_call|>' -}}
      {%- endfor -%}
      {{- last.results -}}
      {%- set answer = without_thoughts(text(message.content)) -%}
      {{- answer -}}
      {%- if last.calls and not last.results -%}
        {{- '<|tool_response>' -}}
      {%- elif not last.results or following.role not in ('', 'assistant') or (answer and following.role == '') -%}
        {{- '<turn|>\\n' -}}
      {%- endif -%}
    {%- elif not (leading and loop.first) -%}
      {{- raise_exception('the built-in template takes a leading system message, then user, assistant and tool; got '
                          ~ message.role) -}}
    {%- endif -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {%- if last.results and enable_thinking -%}
    {{- '<|channel>thought\\n' -}}
  {%- elif not last.calls -%}
    {{- '<|turn>model\\n' -}}
    {%- if empty_thought and not enable_thinking -%}
      {{- '<|channel>thought\\n<channel|>' -}}
    {%- endif -%}
  {%- endif -%}
{%- endif -%}
"""


EMPTY_THOUGHT = "<|channel>thought\\n<channel|>"
"""What a template's source says, the newline still escaped, if answers without thinking begin with an empty thought."""


def gemma4(*, empty_thought: bool) -> str:
    """The template of a Gemma 4; with `empty_thought`, an answer without thinking begins after an empty thought."""
    return f"{{%- set empty_thought = {str(empty_thought).lower()} -%}}\n{GEMMA4}"
