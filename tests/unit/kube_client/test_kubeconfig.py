"""Kubeconfig files, good and bad: which server is meant, who asks, and what a person is told."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_client.kubeconfig import find_access, read_access
from tests.kit.refusals import refusal

SECRET = "s3cr3t"
SERVER = {"server": "https://one.example:6443"}


def document(cluster=None, user=None, **other):
    return {
        "clusters": [{"name": "c", "cluster": SERVER if cluster is None else cluster}],
        "users": [{"name": "u", "user": {} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        **other,
    }


def written(folder, content, name="config"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_the_current_context_decides(tmp_path):
    """With two of everything."""
    config = document(user={"token": SECRET})
    config["clusters"].append({"name": "d", "cluster": {"server": "http://two.example"}})
    config["users"].append({"name": "v", "user": {"username": "me", "password": SECRET}})
    config["contexts"].append({"name": "y", "context": {"cluster": "d", "user": "v"}})
    path = written(tmp_path, config | {"current-context": "y"})
    access = read_access([path])
    assert (access.server.server, access.user.username) == ("http://two.example", "me")
    assert SECRET not in repr(access)


def test_paths_are_relative_to_the_file(tmp_path):
    """A command is only a path if it has a slash."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "bin/login"}
    user = {"client-certificate": "a.crt", "client-key": "/b.key", "exec": plugin}
    config = document({**SERVER, "certificate-authority": "pki/ca.crt"}, user)
    access = read_access([written(tmp_path, config, "deep/config")])
    deep = tmp_path / "deep"
    assert access.server.certificate_authority == str(deep / "pki/ca.crt")
    assert (access.user.client_certificate, access.user.client_key) == (
        str(deep / "a.crt"),
        "/b.key",
    )
    assert access.user.exec.command == str(deep / "bin/login")


@pytest.mark.parametrize(
    "config",
    [
        document() | {"contexts": [{"name": "x", "context": {"cluster": "c"}}], "users": None},
        document() | {"contexts": [{"name": "x", "context": {"cluster": "c", "user": None}}]},
        document() | {"preferences": {}, "kind": "Config", "extensions": [{"name": "e"}]},
        document({**SERVER, "certificate-authority-data": None}, {"token": None}),
    ],
)
def test_what_is_left_out_or_null_or_unknown_does_no_harm(tmp_path, config):
    """Go reads null as nothing, and so do files that kubectl wrote."""
    access = read_access([written(tmp_path, config)])
    assert access.server.server == SERVER["server"]
    assert not access.user.token


BAD = {
    "no file": (None, "cannot read the kubeconfig: No such file"),
    "no YAML": (f"a: [{SECRET}", "config:1:"),
    "an alias that is a secret": (f"a: *{SECRET}", "found undefined alias …"),
    "a tag that is a secret": (f"a: !it's{SECRET} x", "for the tag …"),
    "no text": ("a: \x00", "is not text"),
    "a list": ("[]", "the whole file is not as it has to be"),
    "nothing": ("", "current-context is not set"),
    "an empty one": ("{}", "current-context is not set"),
    # As deep as Python goes: to read so many takes the square of their number.
    "brackets by the hundred": ("a: " + "[" * 700, "the kubeconfig is not YAML"),
    "an anchor within itself": ("a: &b [*b]", "the kubeconfig is not YAML"),
    "no such day": ("a: 2026-13-45", "the kubeconfig is not YAML"),
    "an unknown context": (document() | {"current-context": "z"}, "names the context 'z'"),
    "an unknown cluster": (document() | {"clusters": []}, "context 'x' names no cluster"),
    "an unknown user": (document() | {"users": []}, "context 'x' names no user"),
    "a wrong type": (document(user={"token": [SECRET]}), "users[0].user.token"),
    "a name twice": (document() | {"users": [{"name": "u"}] * 2}, "the name 'u' stands twice"),
    "no server": (document({}), "cluster 'c' has no server"),
    "no scheme": (document({"server": "one.example:6443"}), "https://HOST:PORT"),
    "a port that is none": (document({"server": "https://one.example:x"}), "https://HOST:PORT"),
    "blind trust": (
        document({**SERVER, "certificate-authority": "ca", "insecure-skip-tls-verify": True}),
        "of which only one can hold",
    ),
    "an authority twice": (
        document({**SERVER, "certificate-authority": "a", "certificate-authority-data": "b"}),
        "both certificate-authority and certificate-authority-data",
    ),
    "an unknown proxy": (document({**SERVER, "proxy-url": "socks4://p:1"}), "proxy-url"),
    "a proxy with a bad port": (document({**SERVER, "proxy-url": "http://p:x"}), "proxy-url"),
    "no key": (document(user={"client-certificate": "a"}), "only one of client-certificate"),
    "two ways": (document(user={"token": SECRET, "username": "a"}), "token, username"),
    "an old plugin": (document(user={"auth-provider": {"name": "gcp"}}), "use exec"),
    "a plugin of an old version": (
        document(user={"exec": {"apiVersion": "v1alpha1", "command": "a"}}),
        "whose apiVersion is not one of client.authentication.k8s.io/v1,",
    ),
    "a plugin without a command": (
        document(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}),
        "an exec without a command",
    ),
    "a plugin in a mode that is none": (
        document(
            user={
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "a",
                    "interactiveMode": "Sometimes",
                }
            }
        ),
        "interactiveMode",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_refused(tmp_path, name):
    """With the file and the field, with a remedy, and without a secret."""
    content, what = BAD[name]
    path = tmp_path / "config" if content is None else written(tmp_path, content)
    caught = refusal(find_access, path, {})
    text = str(caught)
    assert what in text
    assert str(path) in text
    assert SECRET not in text
    assert caught.remedy


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    """Of the server, and of the user."""
    path = written(tmp_path, document({}, {"client-key": "a", "token": "b", "username": "c"}))
    assert len(str(refusal(read_access, [path])).splitlines()) == 3


def test_where_it_is_looked_for(tmp_path):
    """KUBECONFIG, of which files may be missing, the user's file, else the service account."""
    path = written(tmp_path, document())
    home = written(tmp_path, document(), ".kube/config")
    listed = {"KUBECONFIG": f"{tmp_path / 'none'}::{path}", "HOME": str(tmp_path)}
    assert find_access(None, {"HOME": str(tmp_path)}).where == str(home)
    assert find_access(None, listed).where == str(path)
    (tmp_path / "empty").touch()
    beside = {"KUBECONFIG": f"{tmp_path / 'empty'}:{path}"}
    assert find_access(None, beside).where == str(path)
    with pytest.raises(Refused, match="none: cannot read"):
        find_access(None, {"KUBECONFIG": str(tmp_path / "none")})
    account = tmp_path / "account"
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    inside = {**pod, "HOME": "/nowhere", "KUBECONFIG": str(tmp_path / "empty")}
    for files in (listed, {"HOME": str(tmp_path)}):
        assert find_access(None, {**pod, **files}, account).where != str(account)
    with pytest.raises(Refused, match="has no service account"):
        find_access(None, inside, account)
    for name in ("ca.crt", "token"):
        written(account, "x", name)
    access = find_access(None, inside, account)
    assert access.server.server == "https://[fd00::1]:6443"
    assert access.server.certificate_authority == str(account / "ca.crt")
    assert access.user.token_file == str(account / "token")
    assert find_access(path, inside, account).where == str(path)
    (account / "namespace").write_bytes(b"\xff")
    with pytest.raises(Refused, match="namespace cannot be read"):
        find_access(None, inside, account)
    assert find_access(None, {**inside, "POD_NAMESPACE": "rdma"}, account).namespace == "rdma"
    assert access.namespace == "default"
    written(account, "here\n", "namespace")
    assert find_access(None, inside, account).namespace == "here"
    assert find_access(None, {**inside, "POD_NAMESPACE": "there"}, account).namespace == "there"
    with pytest.raises(Refused, match="context 'y' is nowhere"):
        find_access(None, {**pod, "KUBECONFIG": str(home)}, account, context="y")


NAMES = st.sampled_from("abc")
FILES = st.lists(
    st.fixed_dictionaries(
        {
            "clusters": st.sets(NAMES),
            "users": st.sets(NAMES),
            "contexts": st.dictionaries(NAMES, st.tuples(NAMES, NAMES)),
            "current": st.none() | NAMES,
        }
    ),
    min_size=1,
    max_size=4,
)


def file_of(number, parts):
    """Its entries show which file they are from; only the first file has a field of its own."""
    return {
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}{number}"}}
            for name in sorted(parts["clusters"])
        ],
        "users": [
            {"name": name, "user": {"token" if number % 2 else "as": f"{name}{number}"}}
            for name in sorted(parts["users"])
        ],
        "contexts": [
            {"name": name, "context": {"cluster": cluster, "user": user}}
            for name, (cluster, user) in sorted(parts["contexts"].items())
        ],
        "current-context": parts["current"],
    }


def merged_by_hand(files):
    """The documented rule, for one question: which cluster and user are meant."""

    def first(part, name):
        return next((n for n, file in enumerate(files) if name in file[part]), None)

    current = next((file["current"] for file in files if file["current"]), None)
    if current is None or (number := first("contexts", current)) is None:
        return None
    cluster, user = files[number]["contexts"][current]
    servers, users = first("clusters", cluster), first("users", user)
    if servers is None or users is None:
        return None
    return f"https://{cluster}{servers}", f"{user}{users}", users % 2 == 1


@given(FILES)
def test_the_first_file_that_has_a_name_wins_whole(tmp_path_factory, files):
    """As kubectl documents it: no entry is made of two files' fields."""
    folder = tmp_path_factory.mktemp("files")
    paths = []
    for number, parts in enumerate(files):
        path = folder / str(number)
        path.write_text(json.dumps(file_of(number, parts)))
        paths.append(path)
    expected = merged_by_hand(files)
    listed = {"KUBECONFIG": ":".join(map(str, paths))}
    if expected is None:
        with pytest.raises(Refused):
            find_access(None, listed)
        return
    access = find_access(None, listed)
    user = access.user
    name = user.token or user.impersonate
    assert (access.server.server, name, bool(user.token)) == expected
    assert not (user.token and user.impersonate)
    assert Path(access.where) in paths
