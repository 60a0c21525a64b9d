"""Parses expressions of CEL into the trees that claims/rules/cel/evaluate walks through.

The grammar is that of github.com/google/cel-spec, doc/langdef.md. Parts that selectors do not need
(bytes, unsigned numbers, messages, three quotes, maps) are NotEvaluated, and so is all that cannot
be read. The API server takes no wrong selector, so no text is called wrong here. The author of a
selector chooses its length: runs of one sign become lists, which nothing recurses into, and only
expressions in brackets are nested.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from kube_base.frozen import Frozen

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |(?P<number>0x[0-9a-fA-F]+|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?)(?![\w])
    |(?P<text>[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))(?!["'])
    |(?P<word>cel\.bind\b|[A-Za-z_]\w*)
    |(?P<sign>\.\?|\[\?|&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))
_CONSTANTS = {"true": True, "false": False, "null": None}
_BINARY = (("||",), ("&&",), ("==", "!=", "<=", ">=", "<", ">", "in"), ("+", "-"), ("*", "/", "%"))
_LONGEST = 10 << 10  # CELSelectorExpressionMaxLength of k8s.io/api v0.36.3, resource/v1/types.go
_DEEPEST = 20  # brackets in brackets
_MOST_DIGITS = 20


class NotEvaluated(ValueError):
    """The error for a CEL expression that kube-rdma cannot evaluate."""


class Literal(Frozen):
    """A literal value in a CEL expression."""

    value: object


class Name(Frozen):
    """A variable in a CEL expression."""

    name: str


class ListOf(Frozen):
    """A list in a CEL expression: ``[a, b]``."""

    items: tuple[Expression, ...]


class FunctionCall(Frozen):
    """A call of a function, method or operator in a CEL expression.

    ``&&`` and ``||`` have all operands of a run; ``?:`` has pairs of condition and value, then the
    value for no true condition.
    """

    name: str
    arguments: tuple[Expression, ...]


class Index(Frozen):
    """A step ``[key]`` or ``.key`` in a CEL expression; `optional` for ``[?key]`` and ``.?key``."""

    key: Expression
    optional: bool = False


class Chain(Frozen):
    """A value and steps from it in a CEL expression: ``a.b[c].d(e)``, ``a + b - c``."""

    start: Expression
    steps: Steps


Steps = tuple[Index | FunctionCall, ...]
Expression = Literal | Name | ListOf | FunctionCall | Chain


@lru_cache(maxsize=32)
def parsed(text: str) -> Expression:
    """Parse the text of a CEL expression; raise NotEvaluated if it is not understood."""
    if len(text) > _LONGEST:
        raise NotEvaluated("it is too long")
    parser = _ExpressionParser(_tokens(text))
    whole = parser.ternary()
    parser.take("")
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


class _ExpressionParser:
    """A recursive parser of the tokens of a CEL expression."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("", "")]
        self._place = 0
        self._depth = 0

    def ternary(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotEvaluated("it is nested too deeply")
        parts = [self._binary(0)]
        while self._has("?"):
            parts.append(self.ternary())
            self.take(":")
            parts.append(self._binary(0))
        self._depth -= 1
        return FunctionCall("?:", tuple(parts)) if len(parts) > 1 else parts[0]

    def take(self, sign: str) -> None:
        """Skip a sign, or the end for ""; raise NotEvaluated if something else is there."""
        if not self._has(sign):
            raise NotEvaluated(f"{self._tokens[self._place][1]!r:.40} is not understood")

    def _has(self, sign: str) -> bool:
        kind, text = self._tokens[self._place]
        if text != sign or kind in ("text", "number"):
            return False
        self._place += 1
        return True

    def _binary(self, level: int) -> Expression:
        if level == len(_BINARY):
            return self._unary()
        first = self._binary(level + 1)
        steps: list[FunctionCall] = []
        while sign := next((one for one in _BINARY[level] if self._has(one)), None):
            steps.append(FunctionCall(sign, (self._binary(level + 1),)))
        if steps and steps[0].name in ("&&", "||"):
            return FunctionCall(steps[0].name, (first, *(one.arguments[0] for one in steps)))
        return Chain(first, tuple(steps)) if steps else first

    def _unary(self) -> Expression:
        """Parse an operand behind a run of `!` or `-`, of which two cancel each other."""
        sign, odd = "", False
        while again := next((one for one in sign or "!-" if self._has(one)), ""):
            sign, odd = again, not odd
        inner = self._member()
        if not odd:
            return inner
        if sign == "-" and isinstance(inner, Literal) and type(inner.value) in (int, float):
            return Literal(-inner.value)  # type: ignore[operator]  # the line above
        return FunctionCall("!" if sign == "!" else "negate", (inner,))

    def _member(self) -> Expression:
        start = self._primary()
        steps: list[Index | FunctionCall] = []
        while sign := next((one for one in (".", ".?", "[", "[?") if self._has(one)), None):
            if sign[0] == "[":
                steps.append(Index(self.ternary(), sign == "[?"))
                self.take("]")
                continue
            word = self._word()
            if sign == "." and self._has("("):
                steps.append(FunctionCall(word, self._arguments(")")))
            else:
                steps.append(Index(Literal(word), sign == ".?"))
        return Chain(start, tuple(steps)) if steps else start

    def _primary(self) -> Expression:
        kind, text = self._tokens[self._place]
        self._place += 1
        if kind == "number":
            return Literal(_number(text))
        if kind == "text":
            raw = text[0] in "rR"
            return Literal(text[2:-1] if raw else _ESCAPE.sub(_escaped, text[1:-1]))
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
        raise NotEvaluated(f"{text or 'its end'!r:.40} is not understood")

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
            raise NotEvaluated(f"{text or 'its end'!r:.40} is not understood")
        self._place += 1
        return text


def _number(text: str) -> object:
    if not text.startswith("0x") and not text.isdigit():
        return float(text)
    number = int(text[:_MOST_DIGITS], 16 if text.startswith("0x") else 10)
    if len(text) > _MOST_DIGITS or number > 1 << 63:
        raise NotEvaluated(f"the number {text:.40} is too large")
    return number


def _escaped(match: re.Match[str]) -> str:
    if code := match[1] or match[2] or match[3]:
        number = int(code, 16)
        if number > sys.maxunicode or 0xD800 <= number < 0xE000:
            raise NotEvaluated(f"{match[0]} is no character")
        return chr(number)
    if match[4] not in _ESCAPES:  # octal digits
        raise NotEvaluated(f"{match[0]!r} is not understood")
    return _ESCAPES[match[4]]
