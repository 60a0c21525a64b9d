"""Writes perftest's command lines, and reads its tables.

Its output is a table for people: a header names columns and units, a row for each size follows.
The option for JSON writes what no parser takes (4.5: keys without quotes), so the table is read. It
may have warnings between its lines and more columns in other versions, and a log may have it all on
one line.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from kube_base.errors import Unavailable
from kube_base.plain_text import plain
from kube_rdma.model.verify import PerftestRow, PerftestRun, PodDevice

LISTENING = "listening"  # what a server's script prints when it can be dialled
SIGNALLED = "a client was ended by signal"  # with the number behind it
# Words of failures that pass: a packet was lost too often; two clocks did not agree, for the cores
# were busy while perftest compared them (get_clock.c: a correlation below 0.9); see client_script.
_PASSING = "Completion with error", "Can't produce a report", SIGNALLED
# src/perftest_resources.c prints a message that failed: its ibv_wc_status, how many were posted to
# the queue pair, and how many of them have completed.
_FAILED = re.compile(r"Failed status (\d+):.{1,60}?scnt=(\d+), ccnt=(\d+)")
_STATUSES = {"12": "no acknowledgement"}  # IBV_WC_RETRY_EXC_ERR
_TRIES = 60  # of a client by RDMA_CM, one each second
MOST_COLUMNS = 16  # of a table; perftest's widest has 9
_MEGABYTE_BITS = 8 * 2**20  # perftest's "MB" is 2**20 bytes (src/perftest_resources.c)
_GBPS = {"MB/sec": _MEGABYTE_BITS / 1e9, "Gb/sec": 1.0}
# The header's columns: "BW peak[Gb/sec]", "t_avg[usec]", "99% percentile[usec]", "CPU_Util[%]". All
# is bounded, so that no output of a pod keeps the expression busy.
_ONE = r"\s{1,80}[^\[\]\s][^\[\]\n]{0,60}?\[[^\]\n]{1,30}\]"
_HEADER = re.compile(rf"#bytes\s{{1,80}}#iterations(?P<columns>(?:{_ONE}){{1,{MOST_COLUMNS}}})")
_COLUMN = re.compile(r"(?P<name>[^\[\]\s][^\[\]]*?)\s*\[(?P<unit>[^\]]+)\]")
_COUNT = re.compile(r"[0-9]{1,18}")  # Python refuses to read numbers of thousands of digits
_FIGURE = re.compile(r"-?\d+(?:\.\d+)?|inf|nan", re.IGNORECASE)
_ENDS_OF_OUTPUT = 300  # characters of an output without a table that a person gets to see


def perftest_words(run: PerftestRun, device: PodDevice, tcp_port: int) -> tuple[str, ...]:
    """Return perftest's command line of a server; a client appends the server's address."""
    kind = "lat" if run.latency else "bw"
    words = [f"ib_{run.operation}_{kind}", "-F", "-d", device.name, "-i", str(device.port)]
    words += ["-p", str(tcp_port)]
    if device.gid_index is not None:
        words += ["-x", str(device.gid_index)]
    if not run.latency:
        words += ["--report_gbits", "-q", str(run.queue_pairs)]
    if run.all_sizes:
        words.append("-a")
    elif run.size is not None:
        words += ["-s", str(run.size)]
    if run.iterations is not None:
        words += ["-n", str(run.iterations)]
    if run.rdma_cm:
        words.append("-R")
    if run.cuda is not None:
        words.append(f"--use_cuda={run.cuda}")
    return tuple(words)


def server_script(words: Sequence[str], tcp_port: int, seconds: int) -> str:
    """Return a shell script that runs a server for `seconds` at most and reports when it listens.

    Ends exchange their queue pair numbers by TCP or RDMA_CM. No file shows that RDMA_CM listens, so
    the script reports RDMA_CM at once. The server ends at a line or the end of the script's stdin,
    and so with its connection. Else a server whose client died would poll a whole core for ever.
    """
    # In /proc/net/tcp: that port in hexadecimal, any peer, state 0A (LISTEN).
    listens = f":{tcp_port:04X} 0*:0000 0A"
    awaited = (
        f"until grep -qs '{listens}' /proc/net/tcp /proc/net/tcp6;"
        " do kill -0 $server 2>/dev/null || { wait $server; exit; }; sleep 0.1; done; "
    )
    return (
        # A shell gives what is in its background /dev/null for stdin, so a copy is read. timeout
        # (coreutils) leads a group: a signal that comes as it starts misses its child otherwise.
        f"exec 3<&0; {shlex.join(('timeout', str(seconds), *words))} & server=$!;"
        " { read -r line <&3; kill -- -$server || kill $server; } >/dev/null 2>&1 & watch=$!;"
        " trap 'kill $watch 2>/dev/null' EXIT;"
        f" {'' if '-R' in words else awaited}echo {LISTENING}; wait $server"
    )


def client_script(words: Sequence[str], seconds: int) -> str:
    """Return a shell script that runs a client for at most `seconds`.

    With RDMA_CM each try begins after a second: a server dialled just before it listens may wait
    for that client, and answer no other. So does a server whose client connected and was ended by a
    signal; then the script gives up. By RDMA_CM perftest connects twice, and a client of 4.5
    ends by a signal when the server does not listen again yet. A client that is refused at once
    exits with 1, and is tried again.
    """
    command = shlex.join(words)
    if "-R" not in words:
        return f"exec timeout {seconds} {command}"
    tries = (
        f"for again in $(seq {_TRIES}); do sleep 1; text=$({command} 2>&1); code=$?;"
        ' if [ $code = 0 ]; then echo "$text"; exit; fi;'
        f' if [ $code -gt 128 ]; then text="$text; {SIGNALLED} $((code - 128))"; break; fi; done;'
        ' echo "$text" >&2; exit 1'
    )
    return f"exec timeout {seconds} sh -c {shlex.quote(tries)}"


def is_worth_a_try(failure: str) -> bool:
    """Decide whether a failed run with this output may succeed when repeated."""
    return any(words in failure for words in _PASSING)


def reason(text: str) -> str:
    """Return why a run failed on one line: the failed message if perftest prints one, else all."""
    words = " ".join(text.split())
    if not (found := _FAILED.search(words)):
        return words
    status, sent, done = found.groups()
    why = _STATUSES.get(status, "a message failed")
    return f"{why} after {done} of {sent} messages (ibv_wc_status {status})"


def table(text: str) -> tuple[PerftestRow, ...]:
    """Return the rows of the last result table in perftest's output.

    Raise Unavailable without a result.
    """
    headers = list(_HEADER.finditer(text))
    if not headers:
        raise Unavailable(f"perftest printed no result: {_end(text)}")
    header = headers[-1]
    columns = [(match["name"], match["unit"]) for match in _COLUMN.finditer(header["columns"])]
    words = text[header.end() :].split()
    rows = tuple(_row(columns, cells) for cells in rows_of(words, len(columns)))
    if not rows:
        raise Unavailable(f"perftest printed a header but no figures: {_end(text)}")
    return rows


def rows_of(words: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Yield the word groups that look like table rows: two integers, then `count` figures.

    Each word is examined once per column at most, whatever a pod prints.
    """
    at = 0
    while at + count + 2 <= len(words):
        cells = tuple(words[at : at + count + 2])
        if all(map(_COUNT.fullmatch, cells[:2])) and all(map(_FIGURE.fullmatch, cells[2:])):
            yield cells
            at += len(cells)
        else:
            at += 1


def _row(columns: Sequence[tuple[str, str]], cells: Sequence[str]) -> PerftestRow:
    figures = dict(zip((name for name, _ in columns), map(float, cells[2:]), strict=True))
    units = dict(columns)
    size, iterations = int(cells[0]), int(cells[1])
    for name in ("BW average", "BW avg"):
        if name in figures and units[name] in _GBPS:
            average = _measured(figures[name]) * _GBPS[units[name]]
            return PerftestRow(size, iterations, average or _by_messages(size, figures))
    if units.get("t_avg") == "usec":
        tail = figures.get("99% percentile")
        tail = tail if tail is not None and math.isfinite(tail) else None
        return PerftestRow(size, iterations, _measured(figures["t_avg"]), tail)
    shown = plain(", ".join(f"{name}[{unit}]" for name, unit in columns))
    raise Unavailable(f"perftest printed a table without averages: {shown}")


def _by_messages(size: int, figures: Mapping[str, float]) -> float:
    """Compute Gbit/s from the message rate, which has six digits where the bandwidth has two.

    A soft device on a busy machine stays below the 0.01 Gbit/s that perftest's average can show.
    """
    gigabits = figures.get("MsgRate", 0.0) * 1e6 * size * 8 / 1e9
    return gigabits if math.isfinite(gigabits) and gigabits > 0 else 0.0


def _measured(average: float) -> float:
    """Return an average; raise Unavailable for one that is infinite, negative or no number."""
    if not math.isfinite(average) or average < 0:
        raise Unavailable(f"perftest measured nothing: its average is {average}")
    return average


def _end(text: str) -> str:
    return plain(" ".join(text.split())[-_ENDS_OF_OUTPUT:]) or "it printed nothing"
