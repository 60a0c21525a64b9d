"""What the dialects of the configuration have in common: strict models in, one Config out.

Each dialect is a pydantic model and a function `load`, from the Document that api/text/document
read to the Config that programs take; api/pools/config finds out which dialect a text is written
in.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, Strict
from pydantic.alias_generators import to_camel

from kube_base.frozen import Frozen
from kube_rdma.model.functions.function import FunctionsWish
from kube_rdma.model.pools.pool import PoolSpec

RESCAN = 60  # seconds, the default of the shared device plugin
MOST_SHARES = 100_000  # of one pool: all of them travel in one message, and gRPC ends it at 4 MiB

T = TypeVar("T")
Many: TypeAlias = Annotated[tuple[T, ...], Strict(strict=False)]  # a list in the document


class Typed(BaseModel):
    """An object of a document: no unknown field, no value that only looks like the right type."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, defer_build=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The schema, in which each field has its sentence."""
        from kube_rdma.api.schema import descriptions  # it parses sources, which schemas alone need

        schema = handler(core)
        aliases = {name: field.alias or name for name, field in cls.model_fields.items()}
        descriptions.add(handler.resolve_ref_schema(schema), aliases, cls)
        return schema


class Config(Frozen):
    """What a configuration file means."""

    pools: tuple[PoolSpec, ...]
    rescan: int = RESCAN  # seconds between two looks when the kernel announces nothing; 0: never
    warnings: tuple[str, ...] = ()  # sentences
    functions: tuple[FunctionsWish, ...] = ()
    rails: tuple[str, ...] = ()  # interfaces or PCI addresses of cards, in the order of their rails
