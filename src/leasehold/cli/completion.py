"""`leasehold completion`: print a shell script that completes commands and options.

The scripts are generated from the parsers. Each has a table: for every command, the possible next
words, and the options that take a value. All shells determine the current command in the same way:
from the words so far that are neither options nor option values.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from leasehold.cli.output import OutputFailedError, emit, print_error
from leasehold.cli.parser import Commands, add_group

_NOTES: Final = {
    "bash": ("~/.bashrc", 'eval "$(leasehold completion bash)"'),
    "zsh": ("~/.zshrc, after compinit", 'eval "$(leasehold completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "leasehold completion fish | source"),
}

_FILES: Final = frozenset({"FILE", "DIR", "DIR|FILE"})
"""Metavars of file system paths."""


def add_command(commands: Commands) -> None:
    """Add `completion` to the commands."""
    group = add_group(
        commands,
        "completion",
        summary="print a completion script for a shell",
        description="Print a script that makes a shell complete commands and options.",
        epilog="example:\n  leasehold completion bash > leasehold-completion.bash\n",
    )
    for shell, (where, line) in _NOTES.items():
        parser = group.add_parser(
            shell,
            help=f"for {shell}",
            description=f"Print a script that makes {shell} complete commands and options.",
            epilog=f"""\
To load it in every shell, add this line to {where}:

  {line}

example:
  leasehold completion {shell} > leasehold.{shell}
""",
        )
        parser.set_defaults(run=run, shell=shell)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from leasehold.cli import parser_for  # it imports this module

    try:
        emit(SCRIPTS[arguments.shell](parser_for()).encode())
    except OutputFailedError as error:
        return print_error(str(error))
    return 0


# The commands.


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """A command, as the completion scripts need it."""

    path: tuple[str, ...]
    """Its words after `leasehold`."""
    commands: dict[str, str]
    """Subcommands, with their help."""
    flags: dict[str, str]
    """Its options, with their help."""
    valued: tuple[str, ...]
    """Options that take a value."""
    filed: tuple[str, ...]
    """Options that take a file."""
    takes_files: bool
    """Whether it takes files as arguments."""


def commands_of(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[CompletedCommand]:
    """Yield all commands, parents before their subcommands."""
    below: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    flags: dict[str, str] = {}
    valued: list[str] = []
    filed: list[str] = []
    takes_files = False
    for action in parser._actions:  # noqa: SLF001  argparse has no public alternative
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            below = dict(action.choices)
            helps = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
        elif not action.option_strings:
            takes_files |= action.metavar in _FILES
        for flag in action.option_strings:
            flags[flag] = _plain(action.help or "")
            if action.nargs != 0:
                valued.append(flag)
                if action.metavar in _FILES:
                    filed.append(flag)
    named = {name: _plain(helps.get(name, "")) for name in below}
    yield CompletedCommand(path, named, flags, tuple(valued), tuple(filed), takes_files)
    for name, each in below.items():
        yield from commands_of(each, (*path, name))


def _plain(text: str) -> str:
    """Return the first words of a help text, without characters that are special to a shell."""
    return re.sub(r"[^\w ,.:/=<>-]", "", re.split(r"[;(]", text)[0]).strip()


# bash and zsh: `case` statements on the path, with the same words.


def _words(command: CompletedCommand) -> str:
    valued = "|".join(command.valued) or "-"
    filed = "|".join(command.filed) or "-"
    return (
        f"      commands='{' '.join(command.commands)}'\n"
        f"      flags='{' '.join(command.flags)}'\n"
        f"      valued='|{valued}|'\n"
        f"      filed='|{filed}|'\n"
        f"      files={int(command.takes_files)}"
    )


_SCRIPT: Final = """\
%(first)s
_leasehold_know() {
  case "$1" in
%(cases)s
    *)
      return 1
      ;;
  esac
}

_leasehold() {
  local spot='' commands flags valued filed files word previous='' at
  local current="${%(words)s[%(at)s]}"%(begin)s
  _leasehold_know ''
  for ((at = %(from)s; at < %(at)s; at++)); do
    word="${%(words)s[at]}"
    if [[ -n $previous && $valued == *"|$previous|"* ]]; then
      previous=''
      continue
    fi
    previous="$word"
    if [[ $word != -* && " $commands " == *" $word "* ]]; then
      spot="${spot:+$spot }$word"
      previous=''
      _leasehold_know "$spot"
    fi
  done
  if [[ -n $previous && $valued == *"|$previous|"* ]]; then
    if [[ $filed == *"|$previous|"* ]]; then
      %(files)s
    fi
  elif [[ $current == -* ]]; then
    %(flags)s
  elif [[ -n $commands ]]; then
    %(commands)s
  elif [[ $files == 1 ]]; then
    %(files)s
  fi
}

%(last)s
"""

_COMPGEN: Final = 'mapfile -t COMPREPLY < <(compgen %s -- "$current")'

_BASH: Final = {
    "first": "# bash completion for leasehold\n",
    "words": "COMP_WORDS",
    "from": "1",
    "at": "COMP_CWORD",
    "begin": "\n  COMPREPLY=()",
    "files": _COMPGEN % "-f",
    "flags": _COMPGEN % '-W "$flags"',
    "commands": _COMPGEN % '-W "$commands"',
    "last": "complete -o filenames -F _leasehold leasehold",
}

_ZSH: Final = {
    "first": "#compdef leasehold\n# zsh completion for leasehold\n",
    "words": "words",
    "from": "2",
    "at": "CURRENT",
    "begin": "",
    "files": "_files",
    "flags": "compadd -- ${=flags}",
    "commands": "compadd -- ${=commands}",
    "last": "compdef _leasehold leasehold",
}


def _script(shell: Mapping[str, str], parser: argparse.ArgumentParser) -> str:
    cases = "\n".join(
        f'    "{" ".join(each.path)}")\n{_words(each)}\n      ;;' for each in commands_of(parser)
    )
    return _SCRIPT % {**shell, "cases": cases}


# fish: one line for each word, conditional on its command.

_FISH: Final = """\
# fish completion for leasehold

function __leasehold_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l spot
    for word in $words
        set -l longer $spot $word
        if contains -- "$longer" $__leasehold_commands
            set spot $longer
        end
    end
    test "$spot" = "$argv[1]"
end

set -g __leasehold_commands %(paths)s
complete -c leasehold -f
%(lines)s
"""


def _fish(parser: argparse.ArgumentParser) -> str:
    commands = list(commands_of(parser))
    paths = " ".join(f"'{' '.join(each.path)}'" for each in commands if each.path)
    lines = "\n".join(line for each in commands for line in _fish_lines(each))
    return _FISH % {"paths": paths, "lines": lines}


def _fish_lines(command: CompletedCommand) -> Iterator[str]:
    start = f"complete -c leasehold -n \"__leasehold_at '{' '.join(command.path)}'\""
    for name, text in command.commands.items():
        yield f"{start} -a {name} -d '{text}'"
    for flag, text in command.flags.items():
        kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
        value = " -r -F" if flag in command.filed else " -x" if flag in command.valued else ""
        yield f"{start} {kind}{value} -d '{text}'"
    if command.takes_files:
        yield f"{start} -F"


SCRIPTS: Final[dict[str, Callable[[argparse.ArgumentParser], str]]] = {
    "bash": partial(_script, _BASH),
    "zsh": partial(_script, _ZSH),
    "fish": _fish,
}
