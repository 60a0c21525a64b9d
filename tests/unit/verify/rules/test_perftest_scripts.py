"""The scripts that run perftest's two ends, by a real shell, with a small program in its place."""

import subprocess

import pytest

from kube_rdma.verify.rules.perftest import LISTENING, client_script, is_worth_a_try, server_script

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
    return server_script(words, 18515, 600)


def client(words):
    return client_script(words, 600)


def serving(argv):
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def begun(process):
    """Both lines have come, in whatever order."""
    return {process.stdout.readline() for _ in range(2)} == {"begun\n", f"{LISTENING}\n"}


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
        assert process.stdout.read() == f"{LISTENING}\n"
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
    assert is_worth_a_try(done.stderr)
    assert (tmp_path / "runs").read_text() == "run\n"
