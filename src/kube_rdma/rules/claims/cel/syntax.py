"""An expression of CEL, read: what rules/claims/cel/evaluate walks through.

The grammar is that of github.com/google/cel-spec, doc/langdef.md. What selectors of devices have no
use for (bytes, unsigned numbers, messages, three quotes, maps) is NotEvaluated, and so is all that
cannot be read: the API server takes no wrong selector, so what fails here is only unknown here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kube_base.frozen import Frozen

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |(?P<number>0x[0-9a-fA-F]+|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?)(?![\w])
    |(?P<text>[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))(?!["'])
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign>\.\?|\[\?|&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))
_CONSTANTS = {"true": True, "false": False, "null": None}
_BINARY = (("||",), ("&&",), ("==", "!=", "<=", ">=", "<", ">", "in"), ("+", "-"), ("*", "/", "%"))
_DEEPEST = 60


class NotEvaluated(ValueError):
    """An expression has something that kube-rdma does not evaluate."""


class Literal(Frozen):
    """A value as it is written."""

    value: object


class Name(Frozen):
    """A variable."""

    name: str


class Select(Frozen):
    """``target.field``; `optional` with a question mark."""

    target: Expression
    field: str
    optional: bool = False


class Index(Frozen):
    """``target[key]``."""

    target: Expression
    key: Expression
    optional: bool = False


class FunctionCall(Frozen):
    """A function, a method of `target`, or an operator by its sign."""

    name: str
    arguments: tuple[Expression, ...]
    target: Expression | None = None


class ListOf(Frozen):
    """``[a, b]``."""

    items: tuple[Expression, ...]


Expression = Literal | Name | Select | Index | FunctionCall | ListOf


@lru_cache(maxsize=256)
def parsed(text: str) -> Expression:
    """The expression; raise NotEvaluated."""
    reader = _Reader(_tokens(text))
    whole = reader.ternary()
    reader.take("")
    return whole


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.end() == place:
            raise NotEvaluated(f"{text[place : place + 20]!r} is not understood")
        if match.lastgroup:
            tokens.append((match.lastgroup, match[0]))
        place = match.end()
    return tokens


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("", "")]
        self._place = 0
        self._depth = 0

    def ternary(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotEvaluated("it is nested too deeply")
        condition = self._binary(0)
        if self._has("?"):
            first = self.ternary()
            self.take(":")
            condition = FunctionCall("?:", (condition, first, self.ternary()))
        self._depth -= 1
        return condition

    def take(self, sign: str) -> None:
        """Go past a sign that has to be here; empty is the end."""
        if not self._has(sign):
            raise NotEvaluated(f"{self._tokens[self._place][1]!r} is not understood")

    def _has(self, sign: str) -> bool:
        kind, text = self._tokens[self._place]
        if text != sign or kind in ("text", "number"):
            return False
        self._place += 1
        return True

    def _binary(self, level: int) -> Expression:
        if level == len(_BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while True:
            sign = next((one for one in _BINARY[level] if self._has(one)), None)
            if sign is None:
                return left
            left = FunctionCall(sign, (left, self._binary(level + 1)))

    def _unary(self) -> Expression:
        if self._has("!"):
            return FunctionCall("!", (self._unary(),))
        if self._has("-"):
            inner = self._unary()
            if isinstance(inner, Literal) and type(inner.value) in (int, float):
                return Literal(-inner.value)  # type: ignore[operator]  # the line above
            return FunctionCall("negate", (inner,))
        return self._member()

    def _member(self) -> Expression:
        inner = self._primary()
        while True:
            if self._has("."):
                inner = self._selected(inner)
            elif self._has(".?"):
                inner = Select(inner, self._word(), optional=True)
            elif self._has("["):
                inner = self._indexed(inner, optional=False)
            elif self._has("[?"):
                inner = self._indexed(inner, optional=True)
            else:
                return inner

    def _selected(self, target: Expression) -> Expression:
        word = self._word()
        if self._has("("):
            return FunctionCall(word, self._arguments(")"), target)
        return Select(target, word)

    def _indexed(self, target: Expression, *, optional: bool) -> Expression:
        key = self.ternary()
        self.take("]")
        return Index(target, key, optional)

    def _primary(self) -> Expression:
        kind, text = self._tokens[self._place]
        self._place += 1
        if kind == "number":
            return Literal(_number(text))
        if kind == "text":
            return Literal(_text(text))
        if kind == "word":
            if text in _CONSTANTS:
                return Literal(_CONSTANTS[text])
            return FunctionCall(text, self._arguments(")")) if self._has("(") else Name(text)
        if text == "(":
            inner = self.ternary()
            self.take(")")
            return inner
        if text == "[":
            return ListOf(self._arguments("]"))
        raise NotEvaluated(f"{text or 'its end'!r} is not understood")

    def _arguments(self, end: str) -> tuple[Expression, ...]:
        arguments: list[Expression] = []
        while not self._has(end):
            if arguments:
                self.take(",")
                if self._has(end):
                    break
            arguments.append(self.ternary())
        return tuple(arguments)

    def _word(self) -> str:
        kind, text = self._tokens[self._place]
        if kind != "word":
            raise NotEvaluated(f"{text or 'its end'!r} is not understood")
        self._place += 1
        return text


def _number(text: str) -> object:
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.isdigit() else float(text)


def _text(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    return _ESCAPE.sub(_escaped, text[1:-1])


def _escaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16))
    if match[4] not in _ESCAPES:  # octal digits
        raise NotEvaluated(f"{match[0]!r} is not understood")
    return _ESCAPES[match[4]]
