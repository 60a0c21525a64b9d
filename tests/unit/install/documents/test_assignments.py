"""What --set means, with values that Helm reads in the same way (its pkg/strvals)."""

import pytest

from kube_base.errors import Refused
from kube_rdma.install.documents.assignments import pairs, put
from kube_rdma.install.installation import assigned
from kube_rdma.lib.text import reader
from kube_rdma_lab.installation import objects


def values(text):
    made = None
    for path, value in pairs(text, "--set"):
        made = put(made, path, value)
    return made


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a=b", {"a": "b"}),
        ("a.b=1,a.c=true,d=", {"a": {"b": 1, "c": True}, "d": ""}),
        ("a=null,b=NULL,c=nulls", {"a": None, "b": None, "c": "nulls"}),
        ("a=1.28,b=007,c=-5,d=0,e=1e3", {"a": "1.28", "b": "007", "c": -5, "d": 0, "e": "1e3"}),
        (r"a.kubernetes\.io/role=x\,y,b=\\", {"a": {"kubernetes.io/role": "x,y"}, "b": "\\"}),
        ("a={b,1,true},c=d", {"a": ["b", 1, True], "c": "d"}),
        (r"a={--b=127.0.0.1:9879,c\,d}", {"a": ["--b=127.0.0.1:9879", "c,d"]}),
        ("a[0].b=1,a[0].c=x,a[1].b=2", {"a": [{"b": 1, "c": "x"}, {"b": 2}]}),
        ("a[1]=x", {"a": [None, "x"]}),
        ("a[1][0]=x", {"a": [None, ["x"]]}),
        ("a=[],b={},c=d", {"a": [], "b": {}, "c": "d"}),  # JSON, as Helm's --set-json
        ('a={"b": [1, 2]},c="d,e"', {"a": {"b": [1, 2]}, "c": "d,e"}),
        ("a=[{name: b, resource: c/d}]", {"a": [{"name": "b", "resource": "c/d"}]}),  # YAML
        ("a={b: 1}", {"a": ["b: 1"]}),
        ("a='b,c'", {"a": "b,c"}),
    ],
)
def test_a_text_sets_values(text, meant):
    assert values(text) == meant


@pytest.mark.parametrize("text", ["", "a", "=b", "a=b,", "a=b,c", "a..b=1", "a[x]=1", "a[0]b=1"])
def test_another_form_is_refused_in_a_sentence(text):
    with pytest.raises(Refused, match=r"sets no value.*backslash"):
        values(text)


def test_an_index_changes_the_entry_of_a_file_and_of_an_earlier_option():
    """As in Helm, where the values of files are read first; each option of its own is no list."""
    text = b"controller: {tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}]}"
    files = [reader.read(text, "values.yaml")]
    words = ["controller.tolerations[1].key=c", "controller.tolerations[2].operator=Exists"]
    made = objects([*files, assigned(words, files)], "default", "workloads")
    (pod,) = (one["spec"]["template"]["spec"] for one in made if one["kind"] == "Deployment")
    exists = {"operator": "Exists"}
    assert pod["tolerations"] == [{"key": "a"} | exists, {"key": "c"} | exists, exists]
