"""Command-line parsing: `argparse`, with errors in one line, suggestions, and the exit codes."""

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, Final, NoReturn, TypeAlias

from leasehold.cli.settings.error_texts import (
    OF_CLIENTS,
    hint,
    hint_for_client,
    nearest,
    one_line,
    shown,
)

OK: Final = 0
FAILURE: Final = 1
USAGE_ERROR: Final = 2
NOT_THERE: Final = 3
NO_SERVER: Final = 4
NOT_MET: Final = 5
LOST: Final = 6
DENIED: Final = 7

MEANINGS: Final = {
    OK: "success",
    FAILURE: "failure, or the server refused the request",
    USAGE_ERROR: "the command line is wrong; nothing was sent",
    NOT_THERE: "no such key, lease, file, permit, service, mailbox or object of a service",
    NO_SERVER: "cannot connect to a server, or no answer within the time limit",
    NOT_MET: "the conditions do not hold; the --else steps were executed",
    LOST: "a lease, lock or file was lost while it was held",
    DENIED: "denied: another client holds it, or the right is not granted",
}
_ALWAYS: Final = (OK, FAILURE, USAGE_ERROR, NO_SERVER)


def epilog(examples: str, *others: int, notes: str = "") -> str:
    """Return the end of a help text: examples, notes, and the exit codes."""
    codes = sorted({*_ALWAYS, *others})
    listed = "\n".join(f"  {code}  {MEANINGS[code]}" for code in codes)
    lines = textwrap.dedent(examples).strip().splitlines()
    title = "example" if len(lines) == 1 else "examples"
    shown = "\n".join(f"  {line}" for line in lines)
    shown_notes = f"{notes.strip()}\n\n" if notes else ""
    return f"{title}:\n{shown}\n\n{shown_notes}exit codes:\n{listed}\n"


HELP_COLUMN: Final = 26

_REQUIRED: Final = "the following arguments are required"  # as argparse has it
_ONE_REQUIRED: Final = "is required"  # of several options
_COMMAND: Final = "--"
_NUMBER: Final = re.compile(r"-\d+|-\d*\.\d+")


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  a type


class Parser(argparse.ArgumentParser):
    """Accepts only full option names, and suggests the equivalents of etcd's options.

    With `takes_command`, everything after `--` is a command to run.
    """

    def __init__(self, *, takes_command: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", HelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(**kwargs)
        self._given: list[str] = []
        self._takes_command = takes_command

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse known arguments; raise an error for all others."""
        self._given = sys.argv[1:] if args is None else list(args)
        command = self._cut_command() if self._takes_command else None
        read, rest = super().parse_known_args(self._given, namespace)
        if self._takes_command:
            read.command = command
        rest = self._taken(rest, read)
        if rest:
            self.error(self._unknown(rest[0]))
        return read, rest

    def _cut_command(self) -> list[str] | None:
        """Remove the command from the arguments and return it; None if there is none."""
        if _COMMAND not in self._given:
            return None
        at = self._given.index(_COMMAND)
        command = self._given[at + 1 :]
        self._given = self._given[:at]
        if not command or not command[0]:
            self.error("COMMAND after -- is missing: write one, or omit --")
        return command

    def _taken(self, rest: list[str], read: argparse.Namespace) -> list[str]:
        """Assign arguments after an option to a variadic argument that began before it.

        `argparse` itself assigns only consecutive arguments.
        """
        many = [each for each in self._get_positional_actions() if each.nargs in ("+", "*")]
        if not rest or not many or any(each.startswith("-") for each in rest):
            return rest
        before = getattr(read, many[0].dest) or []
        setattr(read, many[0].dest, [*before, *(self._get_value(many[0], each) for each in rest)])
        return []

    def _is_unknown_option(self, argument: str) -> bool:
        name = argument.partition("=")[0]
        is_option = name.startswith("-") and len(name.strip("-")) > 0
        return is_option and not _NUMBER.fullmatch(name) and name not in self._option_string_actions

    def _unknown(self, argument: str) -> str:
        name = argument.partition("=")[0]
        if not name.startswith("-") and self._takes_command:
            return f"unexpected argument {shown(argument)}: write -- before a command"
        if not name.startswith("-"):
            return f"unexpected argument {shown(argument)}"
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        known = [flag.removeprefix("--") for flag in flags]
        if self._subparsers is not None and name.lstrip("-") in OF_CLIENTS:
            return f"unknown option {name}: write it after the command"
        if "endpoint" in known:
            advice = hint_for_client(name.lstrip("-"), known)
        else:
            advice = hint(name.lstrip("-"), known)
        arguments = {str(each.metavar) for each in self._get_positional_actions()}
        argument = name.lstrip("-").upper()
        for metavar in (argument, argument.removesuffix("S")):
            if metavar in arguments and not (advice and "etcdctl" in advice):
                return f"unknown option {name}: write {metavar} as an argument, without {name}"
        if advice is None and "VALUE" in arguments:
            return f"unknown option {name}: if it is a value, write -- before the key"
        if advice is None:
            return f"unknown option {name}"
        return f"unknown option {name}: {advice.replace('did you mean ', 'did you mean --')}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command; no other argument has choices."""
        if action.choices is None or value in action.choices:
            return
        before = self._given[: self._given.index(value)] if value in self._given else []
        early = next((each for each in before if self._is_unknown_option(each)), None)
        if early is not None:  # and the next argument was taken for a command
            self.error(self._unknown(early))
        near = nearest(str(value), action.choices)
        meant = f"did you mean {near}?" if near else f"choose from {', '.join(action.choices)}"
        self.error(f"unknown command {shown(str(value))}: {meant}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version. An error of writing is raised, unlike in `argparse`."""
        if file is sys.stderr:
            super()._print_message(message, file)
        else:
            from leasehold.cli.output import emit_lines

            emit_lines(message.splitlines())

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, and the help to read."""
        unknown = next((each for each in self._given if self._is_unknown_option(each)), None)
        is_missing = message.startswith(_REQUIRED) or message.endswith(_ONE_REQUIRED)
        if is_missing and unknown is not None:
            message = self._unknown(unknown)  # which is why something else is missing
        sys.stderr.write(f"{self.prog}: {one_line(message)} (see `{self.prog} --help`)\n")
        sys.exit(USAGE_ERROR)


class HelpFormatter(argparse.HelpFormatter):
    """Options with their help beside them; paragraphs filled, examples unchanged."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        super().__init__(prog, max_help_position=HELP_COLUMN, **kwargs)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (self._paragraph(each, width, indent) for each in text.split("\n\n"))
        return "\n\n".join(paragraphs)

    def _paragraph(self, text: str, width: int, indent: str) -> str:
        is_example = any(line.startswith(" ") for line in text.splitlines())
        return text.rstrip() if is_example else super()._fill_text(text, width, indent)


def add_group(
    commands: Commands, name: str, *, summary: str, description: str, epilog: str
) -> Commands:
    """Add a command that only has subcommands. Without a subcommand it prints its help."""
    parser = commands.add_parser(name, help=summary, description=description, epilog=epilog)

    def run(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return USAGE_ERROR

    parser.set_defaults(run=run)
    return parser.add_subparsers(title="commands", metavar="COMMAND")
