"""perftest's tables as the seeds show and its versions print them, and its command lines."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.model.verify import Operation, PerftestRow, PerftestRun, PodDevice
from kube_rdma.verify.rules import perftest

GIGABITS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
MEGABYTES = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
LATENCIES = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
    "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
)
LINE = "-" * 87
# Seed S3's transcript, first and last rows.
TRANSCRIPT = (
    (2, 5000, "0.083670", "0.082376", "5.148474"),
    (4096, 5000, "96.15", "90.05", "2.748027"),
    (8388608, 5000, "98.02", "97.64", "0.001455"),
)
DEVICE = PodDevice("mlx5_1", 1, 3, "192.0.2.1", 100.0)
NUMBERS = st.integers(0, 2**31)
FIGURES = st.floats(0, 1e6).map(lambda value: f"{value:.6f}")


def printed(header, rows, glue="\n"):
    lines = [LINE, header, *("  ".join(map(str, row)) for row in rows), LINE]
    return f"GID index : 2{glue}{glue.join(lines)}{glue}"


@pytest.mark.parametrize("glue", ["\n", " "], ids=["lines", "one line"])
def test_the_seed_s_transcript(glue):
    rows = perftest.table(printed(GIGABITS, TRANSCRIPT, glue))
    assert [(row.size, row.figure) for row in rows] == [
        (2, 0.082376),
        (4096, 90.05),
        (8388608, 97.64),
    ]


def test_megabytes_are_binary_ones():
    """5,500 MB/s, which seed S2's document calls Mbit/s, are 46 Gbit/s."""
    (row,) = perftest.table(printed(MEGABYTES, [(65536, 1000, "5501.00", "5500.00", "0.088")]))
    assert row.figure == pytest.approx(46.137, abs=0.001)


@pytest.mark.parametrize(
    ("messages", "figure"), [("0.000008", 0.004194), ("0.000000", 0.0), ("nan", 0.0), ("-1.0", 0.0)]
)
def test_messages_tell_what_two_digits_do_not(messages, figure):
    """A soft device on a busy machine: eight messages of 64 KiB a second are 4.2 Mbit/s."""
    (row,) = perftest.table(printed(GIGABITS, [(65536, 1000, "0.00", "0.00", messages)]))
    assert row.figure == pytest.approx(figure, rel=1e-3)


def test_latencies_with_their_percentile():
    cells = (2, 1000, "1.01", "9.80", "1.07", "1.08", "0.11", "1.31", "9.80")
    assert perftest.table(printed(LATENCIES, [cells])) == (PerftestRow(2, 1000, 1.08, 1.31),)


def test_a_warning_in_the_table_is_no_row():
    warned = printed(GIGABITS, TRANSCRIPT).replace(
        "\n4096", "\nConflicting CPU frequency values detected: 800.000000 != 2600.000000.\n4096"
    )
    assert perftest.table(warned) == perftest.table(printed(GIGABITS, TRANSCRIPT))


def test_more_columns_of_other_versions():
    rows = [(65536, 1000, "97", "96", "0.18", "12.5")]
    (row,) = perftest.table(printed(f"{GIGABITS}   CPU_Util[%]", rows))
    assert row.figure == 96


@given(st.lists(st.tuples(NUMBERS, NUMBERS, FIGURES, FIGURES, FIGURES), min_size=1, max_size=30))
def test_every_row_is_read(rows):
    read = perftest.table(printed(GIGABITS, rows))
    assert [(row.size, row.iterations) for row in read] == [row[:2] for row in rows]
    averages = [float(row[3]) for row in rows]
    assert [row.figure for row, average in zip(read, averages, strict=True) if average] == [
        average for average in averages if average
    ]


@given(st.text() | st.text().map(lambda text: f"{GIGABITS}\n{text}"))
def test_no_text_breaks_it(text):
    """A table with rows, or a sentence."""
    with suppress(Unavailable):
        assert perftest.table(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{GIGABITS}\n {'9' * 5000} 1 1 1 1",
        f"{GIGABITS}{' ' * 120_000}",
        f"#bytes #iterations{' ' * 120_000}",
        f"#bytes #iterations{' a' * 60_000}",
        f"#bytes #iterations {'a[b] ' * 20_000}{' ' * 20_000}",
        "#bytes #iterations " * 6_000,
    ],
)
def test_no_output_keeps_it_busy(text):
    """Of a pod that means ill; the expressions go over it once."""
    with pytest.raises(Unavailable):
        perftest.table(text)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (12, "no acknowledgement after 235 of 354 messages"),
        (10, "a message failed after 235 of 354 messages"),
    ],
)
def test_a_message_that_failed_is_named_by_its_status(status, why):
    printed = f""" Completion with error at client
 Failed status {status}: wr_id 0 syndrom 0x81
scnt=354, ccnt=235
 Failed to complete run_iter_bw function successfully
"""
    assert perftest.reason(printed) == f"{why} (ibv_wc_status {status})"
    assert perftest.reason(" no  such\ndevice ") == "no such device"


def test_what_it_printed_instead_is_shown():
    with pytest.raises(Unavailable, match=r"Couldn't connect to 192\.0\.2\.7:18515"):
        perftest.table("Couldn't connect to 192.0.2.7:18515\n")


def test_words_of_a_bandwidth():
    run = PerftestRun(Operation.READ, size=4096, iterations=10, queue_pairs=30, cuda=0)
    assert " ".join(perftest.perftest_words(run, DEVICE, 18520)) == (
        "ib_read_bw -F -d mlx5_1 -i 1 -p 18520 -x 3 --report_gbits -q 30 -s 4096 -n 10 --use_cuda=0"
    )


def test_words_of_a_latency_on_infiniband_by_rdma_cm():
    run = PerftestRun(Operation.SEND, latency=True, all_sizes=True, rdma_cm=True)
    assert " ".join(perftest.perftest_words(run, PodDevice("mlx5_0"), 18515)) == (
        "ib_send_lat -F -d mlx5_0 -i 1 -p 18515 -a -R"
    )


def test_a_server_is_awaited_at_its_own_port():
    words = perftest.perftest_words(PerftestRun(), DEVICE, 0x4853)
    assert "':4853 0*:0000 0A'" in perftest.server_script(words, 0x4853, 60)


class CountedWords(Sequence):
    """The words of an output, which count how many of them were looked at."""

    def __init__(self, words):
        self.words, self.looks = words, 0

    def __len__(self):
        return len(self.words)

    def __getitem__(self, place):
        taken = self.words[place]
        self.looks += len(taken) if isinstance(place, slice) else 1
        return taken


@given(st.integers(1, perftest.MOST_COLUMNS), st.lists(st.sampled_from(["1", "1.5", "nan", "x"])))
def test_a_word_is_looked_at_once_for_each_column(count, words):
    counted = CountedWords(words * 20)
    list(perftest.rows_of(counted, count))
    assert counted.looks <= (count + 2) * len(counted)


def test_a_table_as_wide_as_its_output_is_none():
    """A header of thousands of columns made the reader look at each word thousands of times."""
    columns = " ".join("a[b]" for _ in range(perftest.MOST_COLUMNS + 1))
    with pytest.raises(Unavailable):
        perftest.table(f"#bytes #iterations {columns}\n{'1 ' * (perftest.MOST_COLUMNS + 3)}")


@pytest.mark.parametrize("figure", ["nan", "inf", "-1.0", "NaN"])
def test_what_is_no_figure_is_never_a_measurement(figure):
    with pytest.raises(Unavailable, match="measured nothing"):
        perftest.table(printed(GIGABITS, [(65536, 1000, "97.50", figure, "0.18")]))
    with pytest.raises(Unavailable, match="measured nothing"):
        perftest.table(printed(LATENCIES, [(2, 1000, "1", "1", "1", figure, "1", "1", "1")]))


def test_what_a_pod_prints_moves_no_cursor():
    with pytest.raises(Unavailable) as error:
        perftest.table("\x1b[2J\x1b]0;title\x07\u202eCouldn't connect\x9b31m")
    assert str(error.value).isprintable()
    with pytest.raises(Unavailable) as error:
        perftest.table("#bytes #iterations a\x1b[b] x\x1b[2J[c]\n1 1 1 1")
    assert str(error.value).isprintable()


# The scripts that run perftest's two ends, by a real shell, with a small program in its place.

LASTS = "echo begun; exec sleep 600"


@pytest.fixture
def script(tmp_path):
    """Make the command line of one end, which runs these words of a shell instead of perftest."""

    def made(make, body):
        program = tmp_path / "ib_read_bw"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}; {body}\n")
        program.chmod(0o755)
        return ["sh", "-c", make((str(program), "-R", "::1"))]

    return made


def server(words):
    return perftest.server_script(words, 18515, 600)


def client(words):
    return perftest.client_script(words, 600)


def serving(argv):
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def begun(process):
    """Both lines have come, in whatever order."""
    return {process.stdout.readline() for _ in range(2)} == {"begun\n", f"{perftest.LISTENING}\n"}


def test_a_server_ends_when_its_stdin_does(script):
    """Its client may have died; then it polls on, and nothing else ends it soon."""
    with serving(script(server, LASTS)) as process:
        assert begun(process)
        process.stdin.close()
        assert process.stdout.read().strip() in {"", "Terminated"}
        assert process.wait() == 128 + 15  # as a shell tells SIGTERM


def test_a_server_ends_with_its_stdin_when_its_shell_was_killed(script):
    """Its stdout has an end, so whoever had it is gone."""
    with serving(script(server, LASTS)) as process:
        assert begun(process)
        process.kill()
        process.stdin.close()
        assert process.stdout.read().strip() in {"", "Terminated"}


def test_a_server_that_ends_by_itself_leaves_none_that_waits_for_its_stdin(script):
    with serving(script(server, "exit 3")) as process:
        assert process.stdout.read() == f"{perftest.LISTENING}\n"
        assert process.wait() == 3


def test_a_client_asks_until_a_server_answers(script):
    """It is refused once here, for its server does not listen yet."""
    body = "[ -e asked ] && exec echo answer; echo refused | tee asked; exit 1"
    done = subprocess.run(script(client, body), capture_output=True, text=True, check=True)
    assert done.stdout == "answer\n"


def test_a_client_that_a_signal_ended_asks_no_more(script, tmp_path):
    """Its server waits for it, and hears no other: both begin anew."""
    argv = script(client, "echo run >>runs; echo REJECTED; kill -s SEGV $$")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "REJECTED; a client was ended by signal 11\n" in done.stderr
    assert perftest.is_worth_a_try(done.stderr)
    assert (tmp_path / "runs").read_text() == "run\n"
