"""What seed S1's nccl_env.sh does on a tree, in Python: its filters, order, texts and five slips.

After what the seed's script was seen to do, so that the differential test has something to hold on
to where the seeds themselves are not at hand.
"""

import re

NO_GID = ":".join(["0000"] * 8)


def seed(tree):
    """stdout, exit code, and what is exported: nothing after a failure."""
    found = list(_found(tree))
    if not found:
        out = "Not found RDMA device, list devices error\n"
        return out + "Not found RDMA device, get max rate device error\n", 1, {}
    best, taken, differ = "", [], False
    for device, port, index in found:
        rate = _text(tree.devices[device][port].rate).split(" ")[0]
        if not best or _more(rate, best):
            best, taken, differ = rate, [(device, port, index)], False
        elif rate == best:
            differ |= index != taken[0][2]
            taken.append((device, port, index))
    if differ:
        return "rdma devs index inconsistent\n", 1, {}
    hca = ",".join(f"{device}:{port}" for device, port, _ in taken)
    return "", 0, {"NCCL_IB_HCA": hca, "NCCL_IB_GID_INDEX": taken[0][2]}


def _found(tree):
    # Words, as a shell splits a listing: a name with a blank is two, of which neither is there.
    for device in sorted(word for name in tree.devices for word in name.split()):
        for port, facts in sorted(tree.devices.get(device, {}).items()):
            for index, entry in sorted(facts.gids.items()):
                if _gid(entry.gid) and _version(entry.type) and _up(tree, entry.netdev):
                    yield device, port, index


def _text(content):
    return (content or "").rstrip("\n")


def _gid(content):
    """A test with no word or several is an error, which passes."""
    words = _text(content).split()
    first = " ".join(words).split(":")[0].split()
    if len(first) == 1 and first != ["0000"]:
        return False
    return words != [NO_GID]


def _version(content):
    words = " ".join(re.findall(r"[Vv].*", _text(content))).split()
    return len(words) != 1 or words[0].lower() == "v2"


def _up(tree, netdev):
    carrier, known = tree.nets.get(_text(netdev), (None, False))
    if carrier is None or not known:
        return False
    if re.fullmatch(r"[A-Za-z_]\w*", carrier):  # the value of such a variable, which is none
        return False
    if not re.fullmatch(r"0[0-7]*|[1-9][0-9]*", carrier):
        return True  # an error of arithmetic
    return int(carrier) != 0


def _more(first, second):
    values = [_number(first), _number(second)]
    return None not in values and values[0] > values[1]


def _number(text):
    if not re.fullmatch(r"0[0-7]*|[1-9][0-9]*|", text):
        return None
    return int(text or "0", 8 if text.startswith("0") else 10)
