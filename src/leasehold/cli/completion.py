"""`leasehold completion`: print a shell script that completes commands and options.

The scripts are generated from the parsers. Each has a table: for every command, the possible next
words, and the options that take a value. All shells determine the current command in the same way:
from the words so far that are neither options nor option values.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


def _cases(parser: argparse.ArgumentParser, line: Callable[[CompletedCommand], str]) -> str:
    return "\n".join(
        f'    "{" ".join(each.path)}")\n{line(each)}\n      ;;' for each in commands_of(parser)
    )


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


_BASH: Final = """\
# bash completion for leasehold

_leasehold_know() {
  case "$1" in
%(cases)s
    *)
      return 1
      ;;
  esac
}

_leasehold() {
  local path='' commands flags valued filed files word previous='' at
  local current="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  _leasehold_know ''
  for ((at = 1; at < COMP_CWORD; at++)); do
    word="${COMP_WORDS[at]}"
    if [[ -n $previous && $valued == *"|$previous|"* ]]; then
      previous=''
      continue
    fi
    previous="$word"
    if [[ $word != -* && " $commands " == *" $word "* ]]; then
      path="${path:+$path }$word"
      previous=''
      _leasehold_know "$path"
    fi
  done
  if [[ -n $previous && $valued == *"|$previous|"* ]]; then
    if [[ $filed == *"|$previous|"* ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  elif [[ $files == 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -o filenames -F _leasehold leasehold
"""


def _bash(parser: argparse.ArgumentParser) -> str:
    return _BASH % {"cases": _cases(parser, _words)}


_ZSH: Final = """\
#compdef leasehold
# zsh completion for leasehold

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
  local current="${words[CURRENT]}"
  _leasehold_know ''
  for ((at = 2; at < CURRENT; at++)); do
    word="${words[at]}"
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
      _files
    fi
  elif [[ $current == -* ]]; then
    compadd -- ${=flags}
  elif [[ -n $commands ]]; then
    compadd -- ${=commands}
  elif [[ $files == 1 ]]; then
    _files
  fi
}

compdef _leasehold leasehold
"""


def _zsh(parser: argparse.ArgumentParser) -> str:
    return _ZSH % {"cases": _cases(parser, _words)}


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
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
