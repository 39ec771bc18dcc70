"""`leasehold completion`: a script that has a shell complete our commands and options."""

import argparse
from typing import Final

from leasehold.cli.groups import Commands, add_group

_NOTES: Final = {
    "bash": ("~/.bashrc", 'eval "$(leasehold completion bash)"'),
    "zsh": ("~/.zshrc, after compinit", 'eval "$(leasehold completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "leasehold completion fish | source"),
}


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
    from leasehold.cli import parser_for  # noqa: PLC0415
    from leasehold.cli.completion_scripts import SCRIPTS  # noqa: PLC0415
    from leasehold.cli.printing import OutputFailedError, emit  # noqa: PLC0415
    from leasehold.cli.reporting import complain  # noqa: PLC0415

    try:
        emit(SCRIPTS[arguments.shell](parser_for()).encode())
    except OutputFailedError as error:
        return complain(str(error))
    return 0
