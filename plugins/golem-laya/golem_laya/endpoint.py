"""POST /v1/systemone: a state and questions about it, answered in one object.

Refusals are `{"detail": …}`: 400 for a body that is no request, 413 for one that is too large or asks too much, 422 for
a question that cannot be answered.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, NoReturn

from litestar import Request, Response, post
from litestar.exceptions import HTTPException

from golem_core import Server, note_request, unless_gone
from golem_laya.decider import Decider, Decisions
from golem_laya.plugin import PATH
from golem_laya.questions import BadQuestion

BODY_LIMIT = 1 << 20
QUESTIONS = 64


def handler(server: Server, decider: Decider) -> Any:
    """The route handler."""
    turn = asyncio.Lock()

    @post(PATH, status_code=200, name=PATH, request_max_body_size=None)  # `body` has the limit
    async def systemone(request: Request) -> Response[bytes]:
        """Typed decisions about a state."""
        state, questions = read(await body(request))

        gone = threading.Event()

        async def decided() -> Decisions:
            try:
                async with turn:  # waiting here ends when the client hangs up
                    return await asyncio.to_thread(decider.decide, state, questions, gone.is_set)
            except asyncio.CancelledError:
                gone.set()
                raise

        try:
            found = await unless_gone(request.receive, decided())
        except BadQuestion as error:
            refuse(422, str(error))
        note_request(request, f"{len(questions)} question{'s' * (len(questions) != 1)}, {found.positions} positions")
        text = json.dumps(answer(decider, found))
        return Response(text.encode(), media_type="application/json")

    return systemone


def answer(decider: Decider, found: Decisions) -> dict[str, Any]:
    """The object that a client gets."""
    usage = {"input_tokens": found.positions, "output_tokens": 0}
    return {"model": decider.name, "answers": found.answers, "usage": usage}


async def body(request: Request) -> bytes:
    """The request's body; refused as soon as it is too large, without waiting for its end."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_LIMIT:
            refuse(413, "request body too large")
        pieces.append(piece)
    return b"".join(pieces)


def read(data: bytes) -> tuple[Any, dict[str, dict[str, Any]]]:
    """The state and the questions of a request's body."""
    try:
        asked = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):  # what is not UTF-8 and numbers of thousands of digits among them
        refuse(400, "request body must be valid JSON")
    if not isinstance(asked, dict):
        refuse(400, "request body must be an object with 'state' and 'questions'")
    if "questions" not in asked:
        refuse(400, "request body must be an object with a 'questions' field")
    if asked.get("state") is None:
        refuse(400, "'state' is required")
    questions = asked["questions"]
    if not isinstance(questions, dict) or not all(isinstance(each, dict) for each in questions.values()):
        refuse(400, "'questions' must be an object")
    if len(questions) > QUESTIONS:
        refuse(413, f"too many questions ({len(questions)} > {QUESTIONS})")
    return asked["state"], questions


def refuse(status: int, detail: str) -> NoReturn:
    raise HTTPException(detail, status_code=status)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
