"""The command's entry point: the group, its lazily imported subcommands, errors to exit codes.

The codes are in cli/output. An error is a sentence for each fault on stderr; with -o json also a
document on stdout. Subcommands of other packages (the lab) join by the entry point group
``kube_rdma.commands``.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.exceptions import NoSuchCommand

from kube_base.errors import KubeError
from kube_rdma import __version__
from kube_rdma.cli import output as out
from kube_rdma.lib import stacks

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

# Objects made between two looks for garbage. Modules, classes and functions stay for good: at
# Python's 700 some percent of a start look through them (docs/decisions/0033-starting.md).
GARBAGE_AT_START = 100_000
COMPLETE_VARIABLE = "_KUBE_RDMA_COMPLETE"  # by which a shell asks what it may offer

# name -> first line of its help. Importing a module costs; listing must not.
COMMANDS = {
    "agent": "Serve a node's cards; the DaemonSet runs it.",
    "bundle": "Collect what the doctor sees of all nodes.",
    "claim": "Write a claim template for pods.",
    "config": "Check configurations and manifests.",
    "controller": "Do cluster-wide work; the Deployment runs it.",
    "devices": "Show the RDMA devices of this node.",
    "discover": "Propose an installation for the nodes.",
    "doctor": "Find out why RDMA does not work here.",
    "explain": "Show what a pod asked for and got.",
    "fabric": "Show cables between cards and switches.",
    "install": "Install kube-rdma on a cluster.",
    "ip": "Show and check pools of IP addresses.",
    "migrate": "Plan the move from another device plugin.",
    "nccl-env": "Print variables for NCCL, UCX and NVSHMEM.",
    "network": "Clean up nodes; Helm's uninstall runs it.",
    "preflight": "Measure before a pod's containers start.",
    "render": "Print an installation as plain manifests.",
    "repair": "Show which nodes are tainted for their cards.",
    "resources": "Show what pods of a namespace can ask for.",
    "status": "Show the cluster's state and its problems.",
    "top": "Show RDMA traffic by node or by pod.",
    "verify": "Measure RDMA between pods, or test cards.",
    "why": "Find the one cause of a symptom.",
}


# Headings of the help, each with its commands and a line to copy.
GROUPS = (
    (
        "What you have",
        ("devices", "fabric", "ip", "repair", "resources", "status", "top"),
        "kube-rdma status --problems-only",
    ),
    ("Ask why", ("bundle", "doctor", "explain", "why"), "kube-rdma why pod/train/worker-0"),
    ("Check", ("config", "verify"), "kube-rdma verify nodes -f pod.yaml"),
    (
        "Install and change",
        ("claim", "discover", "install", "migrate", "render"),
        "kube-rdma install --values values.yaml --dry-run",
    ),
    (
        "For programs",
        ("agent", "controller", "nccl-env", "network", "preflight"),
        "kube-rdma nccl-env",
    ),
)
_OTHERS = "From other packages"


class LazyGroup(click.Group):
    """A group that imports its own subcommands only when they are called or completed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name raise an error that suggests known names."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise NoSuchCommand(error.command_name, possibilities=names, ctx=ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, also those of other packages."""
        return sorted({*COMMANDS, *(entry.name for entry in _of_others())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of this name; None without one."""
        if cmd_name in COMMANDS:
            word = cmd_name.replace("-", "_")  # of a command's module, and of its function
            command = getattr(importlib.import_module(f"kube_rdma.cli.{word}"), word)
        else:
            entry_points = _of_others().select(name=cmd_name)
            if not entry_points:
                return None
            command = next(iter(entry_points)).load()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for --help, without importing kube-rdma's own."""
        every = self.list_commands(ctx)
        widest = max(map(len, every))
        ours = {name for _, names, _ in GROUPS for name in names}
        others = tuple(name for name in every if name not in ours)
        for title, names, example in (*GROUPS, *(((_OTHERS, others, ""),) if others else ())):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), self._line(ctx, name)) for name in names])
                if example:
                    formatter.write_text(f"Example: {out.typed(example)}")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of exit codes for --help."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in out.MEANINGS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; with `-o json` or `-o yaml`, print an error in that format too."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has gone (`| head`), and has what it wants
            _leave_stdout()
            raise click.exceptions.Exit(0) from None
        except (KubeError, OSError) as error:
            output = ctx.meta.get(out.META)
            if output in out.DOCUMENTS:
                with suppress(OSError):
                    out.show_document(out.error_document(error), output)
            raise

    def _line(self, ctx: click.Context, name: str) -> str:
        if name in COMMANDS:
            return COMMANDS[name]
        command = self.get_command(ctx, name)
        return command.get_short_help_str() if command else ""


def _of_others() -> EntryPoints:
    """Return the entry points by which other packages add commands; reading them is slow."""
    from importlib.metadata import entry_points

    return entry_points(group="kube_rdma.commands")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, prog_name=out.program().replace(" ", "-"), message="%(prog)s %(version)s"
)
def cli() -> None:
    """Run and check RDMA networking for Kubernetes.

    Most commands show or check the RDMA cards, pods, networks and addresses of a node or a cluster.
    `COMMAND --help` shows the options of a command, and examples.
    """


def main() -> None:
    """Run the command; print its error, a line for each fault, and exit with a code."""
    stacks.register()
    gc.set_threshold(GARBAGE_AT_START)
    # Else Python looks for garbage three times as it ends, among objects that end anyway.
    atexit.register(gc.freeze)
    try:
        cli.main(prog_name=out.program(), complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("Interrupted.", err=True)
        sys.exit(out.ExitCode.INTERRUPTED)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (KubeError, OSError) as error:
        click.echo(f"kube-rdma: {out.lines(error)}", err=True)
        if not isinstance(error, KubeError):
            _leave_stdout()
        sys.exit(out.exit_code(error))


def _leave_stdout() -> None:
    """Send further output to /dev/null, as Python would fail at the exit on a closed pipe."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
