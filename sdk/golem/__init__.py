"""Write channels, providers and tools for a golem server, with nothing but the standard library."""

from golem.channel import Channel as Channel
from golem.client import Client as Client
from golem.client import TurnEvent as TurnEvent
from golem.errors import GolemError as GolemError
from golem.errors import UnsupportedFormat as UnsupportedFormat
from golem.extension import Extension as Extension
from golem.messages import FunctionCall as FunctionCall
from golem.messages import JSONSchema as JSONSchema
from golem.messages import Message as Message
from golem.messages import ToolCall as ToolCall
from golem.messages import ToolDef as ToolDef
from golem.provider import Provider as Provider
