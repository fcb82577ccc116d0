"""The public names for plugin authors, re-exported; nothing else.

A plugin imports from `golem_core` itself and from no module below it.  Each name is loaded when it is first used;
`__all__` and `dir` have them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_core.api import load as load
    from golem_core.api import load_embedder as load_embedder
    from golem_core.api import open_device as open_device
    from golem_core.api_answers import ChatAnswer as ChatAnswer
    from golem_core.cli import option_command as option_command
    from golem_core.embedder import LoadedEmbedder as LoadedEmbedder
    from golem_core.engine.media import given_places as given_places
    from golem_core.engine.media import or_given as or_given
    from golem_core.engine.roles import Architecture as Architecture
    from golem_core.engine.roles import ChatModel as ChatModel
    from golem_core.engine.roles import Drafting as Drafting
    from golem_core.engine.roles import Embedder as Embedder
    from golem_core.engine.roles import Media as Media
    from golem_core.engine.roles import MediaGraph as MediaGraph
    from golem_core.engine.roles import MediaKind as MediaKind
    from golem_core.engine.roles import RunGraph as RunGraph
    from golem_core.engine.roles import SamplingDefaults as SamplingDefaults
    from golem_core.errors import BadFile as BadFile
    from golem_core.errors import BadRequest as BadRequest
    from golem_core.errors import GolemError as GolemError
    from golem_core.errors import Unavailable as Unavailable
    from golem_core.errors import Unsupported as Unsupported
    from golem_core.files import Keys as Keys
    from golem_core.files import Metadata as Metadata
    from golem_core.files import ModelFile as ModelFile
    from golem_core.files import TensorSpec as TensorSpec
    from golem_core.files import Weight as Weight
    from golem_core.files import Weights as Weights
    from golem_core.files import block_tensors as block_tensors
    from golem_core.files import check_tensors as check_tensors
    from golem_core.files import dequantize_rows as dequantize_rows
    from golem_core.files import encoded as encoded
    from golem_core.files import open_model as open_model
    from golem_core.files import open_safetensors as open_safetensors
    from golem_core.files import read_json as read_json
    from golem_core.files import refuse_nan as refuse_nan
    from golem_core.graph import RUNS as RUNS
    from golem_core.graph import SCORED as SCORED
    from golem_core.graph import Columns as Columns
    from golem_core.graph import Device as Device
    from golem_core.graph import Graph as Graph
    from golem_core.graph import GraphError as GraphError
    from golem_core.graph import KVRing as KVRing
    from golem_core.graph import Node as Node
    from golem_core.graph import Op as Op
    from golem_core.graph import Pass as Pass
    from golem_core.graph import Recurrent as Recurrent
    from golem_core.graph import Reference as Reference
    from golem_core.graph import Ring as Ring
    from golem_core.graph import Run as Run
    from golem_core.graph import Value as Value
    from golem_core.graph import op as op
    from golem_core.graph import result as result
    from golem_core.graph.device import ListingPass as ListingPass
    from golem_core.graph.device import free_memory as free_memory
    from golem_core.graph.looks import source as source
    from golem_core.graph.ops import rope_frequencies as rope_frequencies
    from golem_core.graph.planner import Buffer as Buffer
    from golem_core.graph.planner import Count as Count
    from golem_core.graph.planner import Fact as Fact
    from golem_core.graph.planner import Fusion as Fusion
    from golem_core.graph.planner import Lowering as Lowering
    from golem_core.graph.planner import Match as Match
    from golem_core.graph.planner import Operand as Operand
    from golem_core.graph.planner import Pattern as Pattern
    from golem_core.graph.planner import Plan as Plan
    from golem_core.graph.planner import Planner as Planner
    from golem_core.graph.planner import State as State
    from golem_core.graph.planner import Step as Step
    from golem_core.hookspecs import DefaultModel as DefaultModel
    from golem_core.hookspecs import DeviceType as DeviceType
    from golem_core.hookspecs import Loaded as Loaded
    from golem_core.hookspecs import Part as Part
    from golem_core.hookspecs import hookimpl as hookimpl
    from golem_core.loaded_model import LoadedModel as LoadedModel
    from golem_core.media.pictures import resize_picture as resize_picture
    from golem_core.options import Option as Option
    from golem_core.plugins import version as version
    from golem_core.progress import LoadProgress as LoadProgress
    from golem_core.sampling import Candidates as Candidates
    from golem_core.sampling import Sampler as Sampler
    from golem_core.sampling import SamplerChain as SamplerChain
    from golem_core.sampling import SamplerContext as SamplerContext
    from golem_core.sampling import SamplerStage as SamplerStage
    from golem_core.sampling import SamplingParams as SamplingParams
    from golem_core.sampling import Shortlist as Shortlist
    from golem_core.server.app import Server as Server
    from golem_core.server.bodies import read_body as read_body
    from golem_core.server.bodies import shown as shown
    from golem_core.server.bodies import whole as whole
    from golem_core.server.disconnect import unless_gone as unless_gone
    from golem_core.server.errors import refusal_of as refusal_of
    from golem_core.server.log import duration as duration
    from golem_core.server.log import note_refusal as note_refusal
    from golem_core.server.log import note_request as note_request
    from golem_core.server.openapi import described as described
    from golem_core.server.refusal import Refusal as Refusal
    from golem_core.server.sse import ByteStream as ByteStream
    from golem_core.text import Call as Call
    from golem_core.text import Calls as Calls
    from golem_core.text import CallSyntax as CallSyntax
    from golem_core.text import ChatTemplate as ChatTemplate
    from golem_core.text import Content as Content
    from golem_core.text import JsonCalls as JsonCalls
    from golem_core.text import Markers as Markers
    from golem_core.text import Reasoning as Reasoning
    from golem_core.text import TaggedCalls as TaggedCalls
    from golem_core.text import Tokenizer as Tokenizer
    from golem_core.text import UnreadableCall as UnreadableCall
    from golem_core.text import tokenizer_from_metadata as tokenizer_from_metadata
else:
    from golem_core.lazy import exporter

    __getattr__ = exporter(
        __name__,
        {
            "golem_core.api": "load load_embedder open_device",
            "golem_core.api_answers": "ChatAnswer",
            "golem_core.cli": "option_command",
            "golem_core.embedder": "LoadedEmbedder",
            "golem_core.engine.media": "given_places or_given",
            "golem_core.engine.roles": (
                "Architecture ChatModel Drafting Embedder Media MediaGraph MediaKind RunGraph SamplingDefaults"
            ),
            "golem_core.errors": "BadFile BadRequest GolemError Unavailable Unsupported",
            "golem_core.files": (
                "Keys Metadata ModelFile TensorSpec Weight Weights block_tensors check_tensors "
                "dequantize_rows encoded open_model open_safetensors read_json refuse_nan"
            ),
            "golem_core.graph": (
                "RUNS SCORED Columns Device Graph GraphError KVRing Node Op Pass Recurrent Reference Ring Run Value op "
                "result"
            ),
            "golem_core.graph.device": "ListingPass free_memory",
            "golem_core.graph.ops": "rope_frequencies",
            "golem_core.graph.looks": "source",
            "golem_core.graph.planner": (
                "Buffer Count Fact Fusion Lowering Match Operand Pattern Plan Planner State Step"
            ),
            "golem_core.hookspecs": "DefaultModel DeviceType Loaded Part hookimpl",
            "golem_core.loaded_model": "LoadedModel",
            "golem_core.media.pictures": "resize_picture",
            "golem_core.options": "Option",
            "golem_core.progress": "LoadProgress",
            "golem_core.sampling": (
                "Candidates Sampler SamplerChain SamplerContext SamplerStage SamplingParams Shortlist"
            ),
            "golem_core.text": (
                "Call Calls CallSyntax ChatTemplate Content JsonCalls Markers Reasoning TaggedCalls "
                "Tokenizer UnreadableCall tokenizer_from_metadata"
            ),
            "golem_core.plugins": "version",
            "golem_core.server.app": "Server",
            "golem_core.server.bodies": "read_body shown whole",
            "golem_core.server.disconnect": "unless_gone",
            "golem_core.server.errors": "refusal_of",
            "golem_core.server.log": "duration note_refusal note_request",
            "golem_core.server.refusal": "Refusal",
            "golem_core.server.openapi": "described",
            "golem_core.server.sse": "ByteStream",
        },
    )
