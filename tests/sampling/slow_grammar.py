"""What a grammar means, done slowly: sets of stacks that characters are pushed through one by one.

Also a vocabulary for masks: all bytes, some longer pieces, pieces of characters, control tokens.
"""

from __future__ import annotations

from golem_core.sampling.grammar.ast import Chars, Choice, Grammar, Name, Repeat, Seq, Text, Token

_SMALLEST = {2: 0x80, 3: 0x800, 4: 0x10000}
MOST = 300  # stacks at one place


class TooManyStacks(Exception):
    """A grammar so ambiguous that its meaning takes too long to find this way."""


class Difference:
    """A token under way: `place` in what it matches, `besides` in what it does not."""

    def __init__(self, place: Place, besides: Place):
        self.place, self.besides = place, besides
        self.key = (place.stacks, besides.stacks)

    def __eq__(self, other):
        return isinstance(other, Difference) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def after(self, data: bytes) -> Difference:
        return Difference(self.place.after(data), self.besides.after(data))

    @property
    def complete(self) -> bool:
        return self.place.complete and not self.besides.complete


class Place:
    """Where a text is in a grammar: every stack that is possible, its top a terminal; the empty one where it may end.

    `partial` holds the bytes of a character that is not whole.
    """

    def __init__(self, grammar: Grammar, stacks=None, partial: bytes = b""):
        self.grammar = grammar
        self.stacks = self._expanded([(Name(grammar.root), None)]) if stacks is None else stacks
        self.partial = partial

    @property
    def alive(self) -> bool:
        return bool(self.stacks)

    @property
    def complete(self) -> bool:
        return None in self.stacks and not self.partial

    def after(self, data: bytes | str) -> Place:
        place = self
        for byte in data.encode() if isinstance(data, str) else data:
            place = place._after_byte(byte)
            if not place.alive:
                break
        return place

    def accepts(self, text: str) -> bool:
        return self.after(text).complete

    def _after_byte(self, byte: int) -> Place:
        data = self.partial + bytes([byte])
        bounds = _could_be(data)
        if bounds is None:
            return Place(self.grammar, frozenset())
        low, high, whole = bounds
        tops = [stack for stack in self.stacks if stack is not None and _meets(stack[0], low, high)]
        if whole:
            going_on = [(top.after(data), rest) for top, rest in tops if isinstance(top, Difference)]
            ended = [rest for top, rest in tops if not isinstance(top, Difference)]
            return Place(self.grammar, self._expanded(going_on + ended))
        return Place(self.grammar, frozenset(tops), data)

    def _expanded(self, stacks):
        done, seen, left = set(), set(), list(stacks)
        while left:
            stack = left.pop()
            if stack in seen:
                continue
            seen.add(stack)
            if len(seen) > MOST:
                raise TooManyStacks
            if stack is None or isinstance(stack[0], Chars):
                done.add(stack)
                continue
            top, rest = stack
            if isinstance(top, Difference):
                done.add(stack)
                if top.complete:
                    left.append(rest)
                continue
            match top:
                case Name(name):
                    left.append((self.grammar.rules[name], rest))
                case Text(text):
                    for character in reversed(text):
                        rest = (Chars(((ord(character), ord(character)),)), rest)
                    left.append(rest)
                case Seq(items):
                    for item in reversed(items):
                        rest = (item, rest)
                    left.append(rest)
                case Choice(items):
                    left += [(item, rest) for item in items]
                case Token(item, None):
                    left.append((item, rest))
                case Token(item, besides):
                    start = Place(Grammar({"root": item})), Place(Grammar({"root": besides}))
                    left.append((Difference(*start), rest))
                case Repeat(item, least, most):
                    if least == 0:
                        left.append(rest)
                    if most != 0:
                        again = Repeat(item, max(least - 1, 0), None if most is None else most - 1)
                        left.append((item, (again, rest)))
        return frozenset(done)


def _could_be(data: bytes):
    """The code points that these bytes may become, and whether they are whole; None if they are not UTF-8."""
    first = data[0]
    length = 1 if first < 0x80 else 2 if 0xC2 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 4
    if 0x80 <= first < 0xC2 or first > 0xF4 or any(not 0x80 <= byte < 0xC0 for byte in data[1:]):
        return None
    code = first if length == 1 else first & (0xFF >> (length + 1))
    for byte in data[1:]:
        code = code << 6 | byte & 0x3F
    missing = length - len(data)
    low, high = code << 6 * missing, (code + 1 << 6 * missing) - 1
    low, high = max(low, _SMALLEST.get(length, 0)), min(high, 0x10FFFF)
    return (low, high, missing == 0) if low <= high else None


def _meets(terminal: Chars | Difference, low: int, high: int) -> bool:
    if isinstance(terminal, Difference):
        return any(stack is not None and _meets(stack[0], low, high) for stack in terminal.place.stacks)
    return any(first <= high and low <= last for first, last in terminal.ranges)


class Pieces:
    """A tokenizer of all bytes and whatever else a test wants; last come a control token and the end."""

    def __init__(self, *more: str | bytes):
        longer = [piece.encode() if isinstance(piece, str) else piece for piece in more]
        self.pieces = [bytes([byte]) for byte in range(256)] + longer + [b"", b"", b""]
        self.vocab_size = len(self.pieces)
        self.control, self.end = self.vocab_size - 2, self.vocab_size - 1
        self.eog = frozenset({self.end})
        self.names = {self.control: b"<control>", self.end: b"<end>"}

    def piece(self, id: int, *, special: bool = False) -> bytes:
        return self.names.get(id, self.pieces[id]) if special else self.pieces[id]


def allowed(tokenizer: Pieces, place: Place) -> set[int]:
    """The tokens that may come next."""
    return {id for id, piece in enumerate(tokenizer.pieces) if piece and place.after(piece).alive}
