"""Prints blueprints (objects with holes for values) as templates of a Helm chart.

`kube-rdma render` fills the same blueprints by install/rules/parts. Constants are written as people
write them (kube_rdma_tools/yaml_constants). A value that is filled in goes through `toJson`, whose
output is YAML, so that no text has to be quoted twice. All templates take their values from
`kube-rdma.values` (templates/_values.tpl). It lays the user's values over the preset's, as
install/rules/presets does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kube_rdma.model.install import ABSENT, EITHER, IS, Blueprint, Hole, Joined, Spread, When
from kube_rdma_tools.yaml_constants import WIDTH, assigned, in_line, scalar

HEAD = "{{- /* Written by tools/chart from src/kube_rdma/install/rules; do not edit. */}}\n"
VALUES = '{{- $values := include "kube-rdma.values" . | fromJson }}\n'
_STEP = 2  # blanks of indentation
# What install/rules/release does, with the release that Helm knows.
_NAMES = """\
{{- $platform := $values.platform }}
{{- $full := $values.fullnameOverride }}
{{- $base := $full | default "kube-rdma" }}
{{- $role := ternary "operator" "controller" $platform.operator }}
{{- if not $values.namespace.name }}
{{- $_ := set $values.namespace "name" .Release.Namespace }}
{{- end }}
{{- $controller := $values.controller.name | default (printf "%s-%s" $base $role) }}
{{- $_ := set $platform "controller" $controller }}
{{- $_ := set $platform "base" $base }}
{{- $_ := set $platform "prefix" ($full | default $values.namespace.name) }}
{{- $_ := set $platform "own" (ternary (printf "%s." $full) "" (ne $full "")) }}
{{- $agents := ternary "kube-rdma" $base $platform.operator }}
{{- $_ := set $platform "agentAccount" (printf "%s-agent" $agents) }}
{{- $_ := set $platform "instance" .Release.Name }}
{{- $_ := set $platform "manager" .Release.Service }}
{{- $version := $values.image.digest | default $values.image.tag | replace ":" "-" }}
{{- $_ := set $platform "version" ($version | trunc 63 | trimAll "-_.") }}
{{- if $full }}
{{- $name := printf "%s-agent" $full }}
{{- $_ := set $platform "daemonSet" $name }}
{{- $_ := set $platform "label" $name }}
{{- $_ := set $platform "configMap" (ternary $name "" (ne $platform.configMap "")) }}
{{- end }}
"""
# Where agents attach networks, the chart has the CRD of NetworkAttachmentDefinition if the cluster
# has none, or if this release made it; one of Multus stays as it is. Without a cluster, as for
# `helm template`, the value alone counts.
_DEFINITION = """\
{{- $crds := $values.crds }}
{{- if and $values.platform.networks $crds.install (not $crds.networkAttachmentDefinitions) }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- $name := "network-attachment-definitions.k8s.cni.cncf.io" }}
{{- $kind := "CustomResourceDefinition" }}
{{- $theirs := lookup "apiextensions.k8s.io/v1" $kind "" $name | default dict }}
{{- $notes := dig "metadata" "annotations" dict $theirs }}
{{- $name = get $notes "meta.helm.sh/release-name" }}
{{- $space := get $notes "meta.helm.sh/release-namespace" }}
{{- $own := and (eq $name .Release.Name) (eq $space .Release.Namespace) }}
{{- $_ := set $crds "networkAttachmentDefinitions" (or (not $theirs) $own) }}
{{- end }}
{{- end }}
"""


def template(blueprints: Sequence[Blueprint]) -> str:
    """Return the text of a template file of the chart with these objects."""
    return HEAD + VALUES + "".join(map(_object, blueprints))


def merging(defaults: Mapping[str, str], objects: Sequence[str], since: Mapping[str, int]) -> str:
    """Return the text of templates/_values.tpl, which prints an installation's values as JSON.

    `defaults` has the preset and distribution of users who name none. Lists and single values of a
    later layer replace earlier ones; sprig's merge would take false or an empty one for missing.
    `objects` are paths such as ``agent.resources``, where Helm has merged default and user's value
    already: a null of the user's takes a part away. `since` has, for values below `platform`, the
    minor version of Kubernetes from which on each is true (install/rules/release).
    """
    served = "".join(
        f'{{{{- $_ := set $values.platform "{name}" (semverCompare ">=1.{minor}-0" $version) }}}}\n'
        for name, minor in since.items()
    )
    return f"""{HEAD}{{{{- define "kube-rdma.over" }}}}
{{{{- $values := deepCopy .below }}}}
{{{{- range $name, $value := .above }}}}
{{{{- if and (kindIs "map" $value) (kindIs "map" (get $values $name)) }}}}
{{{{- $inner := dict "below" (get $values $name) "above" $value }}}}
{{{{- $value = include "kube-rdma.over" $inner | fromJson }}}}
{{{{- end }}}}
{{{{- if not (kindIs "invalid" $value) }}}}
{{{{- $_ := set $values $name $value }}}}
{{{{- end }}}}
{{{{- end }}}}
{{{{- toJson $values }}}}
{{{{- end }}}}
{{{{- define "kube-rdma.values" }}}}
{{{{- /* The defaults of values.yaml once more: `helm upgrade --reuse-values` has those of an older
chart, and null takes one away. */}}}}
{{{{- $layers := .Files.Get "files/layers.json" | fromJson }}}}
{{{{- $values := $layers.defaults }}}}
{"".join(map(_replaced, objects))}\
{{{{- $preset := get $layers.presets
    (.Values.preset | default {json.dumps(defaults["preset"])}) | default dict }}}}
{{{{- $distribution := get $layers.distributions
    (.Values.distribution | default {json.dumps(defaults["distribution"])}) }}}}
{{{{- range $layer := list $preset $distribution (omit .Values "global") }}}}
{{{{- $values = include "kube-rdma.over" (dict "below" $values "above" $layer) | fromJson }}}}
{{{{- end }}}}
{{{{- $version := $values.kubernetesVersion | default .Capabilities.KubeVersion.Version }}}}
{served}\
{_NAMES}\
{_DEFINITION}\
{{{{- toJson $values }}}}
{{{{- end }}}}
"""


def _replaced(path: str) -> str:
    """Return template lines that remove a default if .Values has an object in its place."""
    part, _, name = path.rpartition(".")
    return f"""{{{{- if kindIs "map" (get (.Values.{part} | default dict) "{name}") }}}}
{{{{- $_ := unset $values.{part} "{name}" }}}}
{{{{- end }}}}
"""


def _object(blueprint: Blueprint) -> str:
    lines = ["---", *_fields(blueprint.noted, 0)]
    if blueprint.over:
        lines = [f"{{{{- range $entry := {_path(blueprint.over)} }}}}", *lines, "{{- end }}"]
    if blueprint.conditions:
        first, *others = blueprint.conditions
        test = _condition(first)
        if others:
            test = f"and {' '.join(_condition(one, inner=True) for one in blueprint.conditions)}"
        lines = [f"{{{{- if {test} }}}}", *lines, "{{- end }}"]
    return "".join(f"{line}\n" for line in lines)


def _condition(condition: str, *, inner: bool = False) -> str:
    """Return a condition in Helm's syntax; several paths are joined by `or`."""
    single = EITHER not in condition
    words = [_test(one, inner=inner or not single) for one in condition.split(EITHER)]
    if single:
        return words[0]
    return f"(or {' '.join(words)})" if inner else f"or {' '.join(words)}"


def _test(condition: str, *, inner: bool) -> str:
    """Return a single condition in Helm's syntax: a path, or its comparison with a text."""
    path, equals, text = condition.partition(IS)
    if not equals:
        return _path(path)
    test = f"eq {_path(path)} {_constant(text)}"
    return f"({test})" if inner else test


def _path(path: str) -> str:
    return f"$entry{path}" if path.startswith(".") else f"$values.{path}"


def _fields(body: Mapping[str, Any], indent: int) -> Iterator[str]:
    for name, value in body.items():
        if isinstance(value, Spread):
            own = " ".join(_constant(other) for other in body if other != name)
            yield f"{{{{- range $name, $value := omit {_path(value.path)} {own} }}}}"
            yield f"{' ' * indent}{{{{ $name | toJson }}}}: {{{{ $value | toJson }}}}"
            yield "{{- end }}"
        else:
            yield from _entry(f"{' ' * indent}{scalar(name)}:", value, indent)


def _entry(head: str, node: Any, indent: int) -> Iterator[str]:
    """Yield the lines of a field or list entry; `head` is its first line without the value."""
    match node:
        case When(path, then, otherwise):
            yield from _branches(head, (path, then, otherwise), indent)
        case dict() if node:
            yield head
            yield from _fields(node, indent + _STEP)
        case list() if node:
            is_filled_in = any(isinstance(value, Hole | Joined | Spread | When) for value in node)
            line = "" if is_filled_in else in_line(node, WIDTH - len(head) - 1)
            yield f"{head} {_escaped(line)}" if line else head
            for value in () if line else node:
                yield from _item(value, indent)
        case _:
            yield from _value(head, node, indent)


def _item(node: Any, indent: int) -> Iterator[str]:
    """Yield the template lines of a list's entry; an object begins on the line of its dash."""
    blanks = " " * indent
    match node:
        case When(condition, then, otherwise):
            yield f"{{{{- if {_condition(condition)} }}}}"
            yield from _items(then, indent)
            if otherwise is not ABSENT:
                yield "{{- else }}"
                yield from _items(otherwise, indent)
            yield "{{- end }}"
        case Spread(path):
            yield f"{{{{- range {_path(path)} }}}}"
            yield f"{blanks}- {{{{ . | toJson }}}}"
            yield "{{- end }}"
        case dict() if node:
            first, *rest = _fields(node, indent + _STEP)
            # A field that may be left out cannot share the line of the dash.
            shared = not first.startswith("{{")
            yield f"{blanks}- {first.lstrip()}" if shared else f"{blanks}-\n{first}"
            yield from rest
        case _:
            yield from _value(f"{blanks}-", node, indent)


def _items(chosen: Any, indent: int) -> Iterator[str]:
    """Yield the template lines of one branch in a list: of no entry, one, or several."""
    for value in chosen if isinstance(chosen, list) else [chosen]:
        if value is not ABSENT:
            yield from _item(value, indent)


def _branches(head: str, choice: tuple[str, Any, Any], indent: int) -> Iterator[str]:
    path, then, otherwise = choice
    if then is ABSENT:
        yield f"{{{{- if not {_condition(path, inner=True)} }}}}"
        yield from _entry(head, otherwise, indent)
    else:
        yield f"{{{{- if {_condition(path)} }}}}"
        yield from _entry(head, then, indent)
        if otherwise is not ABSENT:
            yield "{{- else }}"
            yield from _entry(head, otherwise, indent)
    yield "{{- end }}"


def _value(head: str, node: Any, indent: int) -> Iterator[str]:
    match node:
        case Hole(path):
            yield f"{head} {{{{ {_path(path)} | toJson }}}}"
        case Joined(parts):
            texts = ("%v" if isinstance(part, Hole) else part.replace("%", "%%") for part in parts)
            form = "".join(texts)
            paths = " ".join(_path(part.path) for part in parts if isinstance(part, Hole))
            yield f"{head} {{{{ printf {_constant(form)} {paths} | toJson }}}}"
        case _:
            yield from map(_escaped, assigned(head, node, indent))


def _escaped(line: str) -> str:
    """Escape {{ in a line that Helm must not read as a template, such as Grafana's own."""
    return line.replace("{{", '{{ "{{" }}')


def _constant(value: Any) -> str:
    """Return a value as JSON for use inside a Helm action; raise ValueError if it has {{."""
    text = json.dumps(value)
    if "{{" in text:
        raise ValueError(f"Helm would read this as a template: {text}")
    return text
