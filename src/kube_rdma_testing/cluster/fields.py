"""Who owns which field of an object, for the fake API server: merge and server-side apply.

A field is a path of names down to anything but a map. A list is one field, as in the schema of a
custom resource that does not say otherwise. Follows structured-merge-diff in what it refuses: a
field that another manager owns with another value is a conflict unless it is forced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Document = dict[str, Any]
Path = tuple[str, ...]
Manager = tuple[str, str, str]  # name, Apply or Update, subresource
Owners = dict[Path, set[Manager]]

_SERVERS_OWN = {
    *("name", "namespace", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp"),
}


def fields(document: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the path and value of every field that a manager can own."""
    leaves = dict(
        _leaves({k: v for k, v in document.items() if k not in {"apiVersion", "kind"}}, ())
    )
    return {p: v for p, v in leaves.items() if p[0] != "metadata" or p[1] not in _SERVERS_OWN}


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif len(path) > 1:
        yield path, value


def merge(into: Any, patch: Any) -> Any:
    """Return the document after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(into) if isinstance(into, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic_merge(into: Document, patch: Document) -> Document:
    """Return the document after a strategic merge patch (apimachinery's strategicpatch).

    Of all keyed lists only status.conditions is merged, by `type`; ``$patch: delete`` takes an
    entry away.
    """
    patch = {**patch, "status": dict(patch.get("status", {}))}
    conditions = patch["status"].pop("conditions", ())
    result: Document = merge(into, patch)
    entries = {entry["type"]: entry for entry in result["status"].get("conditions", ())}
    for entry in conditions:
        if entry.get("$patch") == "delete":
            entries.pop(entry["type"], None)
        else:
            entries[entry["type"]] = merge(entries.get(entry["type"]), entry)
    result["status"] = {**result["status"], "conditions": list(entries.values())}
    return result


def updated(old: Document, new: Document, owners: Owners, manager: Manager) -> Owners:
    """Return the fields' owners after an update, whose manager alone owns what it changed."""
    before, after = fields(old), fields(new)
    kept = {path: set(who) for path, who in owners.items() if path in after}
    for path, value in after.items():
        if path not in before or before[path] != value:
            kept[path] = {manager}
    return kept


def conflicts(
    live: Document, wanted: Document, owners: Owners, manager: Manager
) -> list[tuple[Path, str]]:
    """Return each field that other managers own with another value, with one of its owners."""
    now = fields(live)
    return [
        (path, min(others)[0])
        for path, value in fields(wanted).items()
        if path in now and now[path] != value and (others := owners.get(path, set()) - {manager})
    ]


def applied(
    live: Document, wanted: Document, owners: Owners, manager: Manager
) -> tuple[Document, Owners]:
    """Return the object and its owners after an apply that has no conflicts or is forced."""
    requested = fields(wanted)
    now = fields(live)
    result = merge(live, {k: v for k, v in wanted.items() if k not in {"apiVersion", "kind"}})
    after = {path: set(who) for path, who in owners.items()}
    for path, value in requested.items():
        taken = path in now and now[path] != value
        after[path] = {manager} if taken else after.get(path, set()) | {manager}
    for path in [p for p, who in after.items() if manager in who and p not in requested]:
        after[path].discard(manager)
        if not after[path]:
            del after[path]
            result = without(result, path)
    return result, after


def without(document: Document, path: Path) -> Document:
    """Return the document without a field and without the maps that this leaves empty."""
    head, *rest = path
    result = dict(document)
    if rest and isinstance(result.get(head), dict):
        result[head] = without(result[head], tuple(rest))
        if not result[head]:
            del result[head]
    else:
        result.pop(head, None)
    return result
