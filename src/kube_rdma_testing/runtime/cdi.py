"""A fake container runtime: looks CDI devices up as containerd does, from the files of a folder.

Follows pkg/cdi and specs-go of the CDI library v1.1.1: what it would refuse is refused, and a
device that two files name is dropped. It rescans at each lookup.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kube_rdma.model.late_binding import Edits, RuntimeHook
from kube_rdma.model.pools import FileMount

_VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_QUALIFIER = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_SPEC = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
_EDITS = {"env", "deviceNodes", "netDevices", "hooks", "mounts", "intelRdt", "additionalGids"}
_NODE = {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
_HOOK = {"hookName", "path", "args", "env", "timeout"}
_STAGES = {
    *("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
}
_MOUNT = {"hostPath", "containerPath", "options", "type"}


class FakeCdiRuntime:
    """A fake runtime that makes containers by the CDI files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def errors(self) -> tuple[str, ...]:
        """Return the errors that the runtime finds in the folder's CDI files."""
        return self._scanned()[1]

    def create(self, *devices: str) -> Edits:
        """Return a container's edits by these CDI devices; raise LookupError for unknown ones."""
        devices_by_name, _ = self._scanned()
        unresolved = [name for name in devices if name not in devices_by_name]
        if unresolved:
            raise LookupError(f"unresolvable CDI devices {', '.join(unresolved)}")
        given = [devices_by_name[name] for name in devices]
        return Edits(
            tuple(node["path"] for one in given for node in one.get("deviceNodes", [])),
            tuple(
                (key, value)
                for one in given
                for key, _, value in (env.partition("=") for env in one.get("env", []))
            ),
            tuple(
                FileMount(mount["hostPath"], mount["containerPath"])
                for one in given
                for mount in one.get("mounts", [])
            ),
            tuple(
                RuntimeHook(hook["hookName"], hook["path"], tuple(hook["args"]))
                for one in given
                for hook in one.get("hooks", [])
            ),
        )

    def _scanned(self) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
        devices: dict[str, dict[str, Any]] = {}
        errors: list[str] = []
        conflicts: set[str] = set()
        for path in sorted(self.folder.iterdir()) if self.folder.exists() else []:
            if path.suffix not in (".json", ".yaml") or path.is_dir():
                continue
            try:
                edits_by_name = _devices(json.loads(path.read_bytes()))
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                errors.append(f"failed to load CDI Spec {path.name}: {error}")
                continue
            for name, edits in edits_by_name.items():
                if name in devices:
                    errors.append(f"conflicting device {name} ({path.name})")
                    conflicts.add(name)
                devices[name] = edits
        return {n: e for n, e in devices.items() if n not in conflicts}, tuple(errors)


def _devices(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a CDI document's edits by device name; raise ValueError as the library does."""
    _check_fields(spec, _SPEC, "specs.Spec")
    if spec["cdiVersion"] not in _VERSIONS:
        raise ValueError(f"invalid version {spec['cdiVersion']!r}")
    vendor, _, kind = spec["kind"].partition("/")
    if not (_QUALIFIER.fullmatch(vendor) and _QUALIFIER.fullmatch(kind)):
        raise ValueError(f"invalid vendor or class {spec['kind']!r}")
    devices: dict[str, dict[str, Any]] = {}
    for device in spec["devices"]:
        _check_fields(device, {"name", "annotations", "containerEdits"}, "specs.Device")
        name, edits = device["name"], device["containerEdits"]
        if not _DEVICE.fullmatch(name):
            raise ValueError(f"invalid device name {name!r}")
        if name[0].isdigit() and _VERSIONS.index(spec["cdiVersion"]) < _VERSIONS.index("0.5.0"):
            raise ValueError("the spec version must be at least v0.5.0")
        if f"{spec['kind']}={name}" in devices:
            raise ValueError(f"invalid spec, multiple device {name!r}")
        _check(edits)
        devices[f"{spec['kind']}={name}"] = edits
    if not devices:
        raise ValueError("invalid spec, no devices")
    return devices


def _check(edits: dict[str, Any]) -> None:
    _check_fields(edits, _EDITS, "specs.ContainerEdits")
    if not any(edits.values()):
        raise ValueError("invalid device, empty device edits")
    for env in edits.get("env", []):
        if env.find("=") <= 0:
            raise ValueError(f"invalid environment variable {env!r}")
    for node in edits.get("deviceNodes", []):
        _check_fields(node, _NODE, "specs.DeviceNode")
        if not node["path"] or set(node.get("permissions", "")) - set("rwm"):
            raise ValueError(f"device {node['path']!r}: invalid path or permissions")
    for mount in edits.get("mounts", []):
        _check_fields(mount, _MOUNT, "specs.Mount")
        if not (mount["hostPath"] and mount["containerPath"]):
            raise ValueError("invalid mount, empty host or container path")
    _check_hooks(edits.get("hooks", []))


def _check_hooks(hooks: list[dict[str, Any]]) -> None:
    for hook in hooks:
        _check_fields(hook, _HOOK, "specs.Hook")
        if hook["hookName"] not in _STAGES:
            raise ValueError(f"invalid hook name {hook['hookName']!r}")
        if not hook["path"]:
            raise ValueError(f"invalid hook {hook['hookName']!r} with empty path")


def _check_fields(given: dict[str, Any], fields: set[str], where: str) -> None:
    """Raise ValueError for an unknown field, as the library does (KnownFields)."""
    for name in given.keys() - fields:
        raise ValueError(f"field {name} not found in type {where}")
